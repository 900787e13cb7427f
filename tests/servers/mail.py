"""A real SMTP server that keeps what is sent to it, and can be away, or refuse."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from typing import Any, Self

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword, Session

from tests.servers.process import free_port


@dataclass(frozen=True)
class Mail:
    """One that was taken."""

    sender: str
    to: list[str]
    message: EmailMessage


class MailServer:
    """``with MailServer() as server: server.port``. With `tls` it asks for STARTTLS and for `user` with `password` first."""

    def __init__(self, *, tls: ssl.SSLContext | None = None, user: str = "", password: str = "") -> None:
        self.taken: list[Mail] = []
        self.answer = "250 taken"
        """What is said to each mail."""
        self.unknown: set[str] = set()
        """Addresses that there are not here."""
        self.port = free_port()
        self._tls = tls
        self._login = (user.encode(), password.encode())
        self._controller: Controller | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Answers; at the same port as before when it was stopped."""
        options: dict[str, Any] = {}
        if self._tls is not None:
            options = {
                "tls_context": self._tls,
                "require_starttls": True,
                "auth_required": True,
                "authenticator": self._admit,
            }
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port, **options)
        self._controller.start()

    def stop(self) -> None:
        """Refuses connections from now on."""
        if self._controller is not None:
            self._controller.stop()
            self._controller = None

    async def handle_RCPT(  # noqa: N802 - as aiosmtpd calls it
        self, server: object, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.unknown:
            return "550 nobody of that name here"
        envelope.rcpt_tos.append(address)
        return "250 known"

    async def handle_DATA(self, server: object, session: Session, envelope: Envelope) -> str:  # noqa: N802
        assert isinstance(envelope.content, bytes)
        if self.answer.startswith("250"):
            message = BytesParser(policy=default).parsebytes(envelope.content)
            assert isinstance(message, EmailMessage)
            self.taken.append(Mail(envelope.mail_from or "", list(envelope.rcpt_tos), message))
        return self.answer

    def _admit(self, server: object, session: object, envelope: object, mechanism: str, data: object) -> AuthResult:
        assert isinstance(data, LoginPassword)
        return AuthResult(success=(data.login, data.password) == self._login, handled=False)
