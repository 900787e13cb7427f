"""How a message goes out: a mail by SMTP, or a POST. Each is bounded in time, so that whoever has taken a message is done with it before another may take it.

::

    Message-ID: <ID@headrace>            webhook-id: ID                       the same at each attempt
    Subject: [critical] firing: …        webhook-timestamp: 1782345600        when it was sent, seconds since 1970
                                         webhook-signature: v1,K5oZ…          base64 of the HMAC-SHA256 of ``id.timestamp.body`` (Standard Webhooks)
"""

from __future__ import annotations

import json
import re
import smtplib
import ssl
import time
from collections.abc import Mapping
from email.message import EmailMessage
from email.utils import formatdate
from urllib.parse import urlencode

import urllib3

from headrace.control.alerts.messages import Words, changed_texts, filled, words_of
from headrace.control.alerts.noted import Message
from headrace.control.alerts.rules import Channel, Email, Webhook
from headrace.errors import ConfigError, DataError, RetryableError
from headrace.signing import webhook_headers
from headrace.tls import Tls

_STEP_S = 8.0
"""How long one answer may take."""
_BEGIN_S = 20.0
"""So long after it was taken no sending is begun any more: with what one takes itself that is well before another server may take it."""
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_REFUSED = {400, 405, 406, 411, 413, 414, 415, 422, 431}
"""What is said of this message, and not of the address or who sends: it would be said again."""
_SHOWN = 200


def send(channel: Channel, message: Message, secrets: Mapping[str, str], taken_s: float) -> None:
    """Sends it. RetryableError when the channel is away, ConfigError when somebody must mend it, DataError when it does not take this message."""
    words = words_of(message)
    if isinstance(channel, Email):
        _mail(channel, message, words, secrets, taken_s)
    else:
        _post(channel, message, words, secrets, taken_s)


def _revealed(text: str, secrets: Mapping[str, str]) -> str:
    """With what its ${NAMES} stand for."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in secrets:
            raise ConfigError(f"there is no secret {found[1]}", fix="put a file of that name among the secrets")
        return secrets[found[1]]

    return _REFERENCE.sub(value, text)


def _in_time(taken_s: float) -> None:
    if time.monotonic() - taken_s > _BEGIN_S:
        raise RetryableError("it took too long to come to the sending", fix="it is tried again")


# --- mail


def _mail(channel: Email, message: Message, words: Words, secrets: Mapping[str, str], taken_s: float) -> None:
    mail = EmailMessage()
    mail["From"], mail["To"] = channel.sender, ", ".join(channel.to)
    mail["Subject"] = " ".join(words.title.split())
    mail["Date"], mail["Message-ID"] = formatdate(), f"<{message.id}@headrace>"
    mail["Auto-Submitted"] = "auto-generated"  # no holiday answers
    mail.set_content(words.text)
    where = f"the mail server {channel.host}:{channel.port}"
    try:
        with _smtp(channel) as server:
            if channel.encryption == "starttls":
                server.starttls(context=_context(channel))
            if channel.user is not None and channel.password is not None:
                server.login(channel.user, _revealed(channel.password, secrets))
            _in_time(taken_s)
            refused = server.send_message(mail)
    except smtplib.SMTPAuthenticationError as error:
        raise ConfigError(
            f"{where} does not let {channel.user} in: {_said(error)}", fix="correct the secret"
        ) from error
    except smtplib.SMTPNotSupportedError as error:
        raise ConfigError(f"{where}: {error}", fix="choose another `encryption`, or another server") from error
    except smtplib.SMTPRecipientsRefused as error:
        # SMTP's codes below 500 are of the moment.
        codes = {code for code, _ in error.recipients.values()}
        what = f"{where} refuses {', '.join(error.recipients)}"
        raise _refusal(what, is_final=min(codes) >= 500) from error
    except smtplib.SMTPResponseException as error:
        raise _refusal(f"{where} refuses: {_said(error)}", is_final=error.smtp_code >= 500) from error
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(
            f"{where} is not who it should be: {error}", fix="correct `host`, or name its `ca`"
        ) from error
    except (smtplib.SMTPException, OSError) as error:
        raise RetryableError(f"{where} does not answer: {error}", fix="start it, or correct the channel") from error
    if refused:  # the others have it; all of them again would be twice
        raise DataError(f"{where} refuses {', '.join(refused)}", fix="correct `to` of the channel")


def _smtp(channel: Email) -> smtplib.SMTP:
    if channel.encryption == "tls":
        return smtplib.SMTP_SSL(channel.host, channel.port, timeout=_STEP_S, context=_context(channel))
    return smtplib.SMTP(channel.host, channel.port, timeout=_STEP_S)


def _context(channel: Email) -> ssl.SSLContext:
    return Tls.model_validate({"ca": channel.ca}).context()


def _said(error: smtplib.SMTPResponseException) -> str:
    said = error.smtp_error
    return f"{error.smtp_code} {said.decode('utf-8', 'replace') if isinstance(said, bytes) else said}"


def _refusal(what: str, *, is_final: bool) -> DataError | RetryableError:
    if is_final:
        return DataError(what, fix="see the log of that server, and correct the channel")
    return RetryableError(what, fix="it is tried again")


# --- webhook


def _post(channel: Webhook, message: Message, words: Words, secrets: Mapping[str, str], taken_s: float) -> None:
    body, media = _body(channel, words, secrets)
    headers = {name: _printable(name, _revealed(text, secrets)) for name, text in channel.headers.items()}
    secret = None if channel.signed_by is None else _revealed(channel.signed_by, secrets)
    try:
        headers |= {"content-type": media, "user-agent": "headrace"} | webhook_headers(message.id, body, secret)
    except ValueError as error:
        raise ConfigError(f"what signs for {channel.place} is no secret: {error}", fix="correct the secret") from error
    url = _revealed(channel.url, secrets)
    if channel.ca is not None:
        _ = Tls.model_validate({"ca": channel.ca}).context()  # says what is wrong with the file
    _in_time(taken_s)
    try:
        with urllib3.PoolManager(ca_certs=channel.ca) as pool:
            answer = pool.request(
                "POST", url, body=body, headers=headers, retries=False, redirect=False, preload_content=False,
                timeout=urllib3.Timeout(total=_STEP_S),
            )  # fmt: skip
            said = answer.read(_SHOWN).decode("utf-8", "replace").strip()
            answer.close()
    except urllib3.exceptions.SSLError as error:
        raise ConfigError(
            f"{channel.place} is not who it should be: {error}", fix="correct `url`, or name `ca`"
        ) from error
    except urllib3.exceptions.LocationValueError as error:
        raise ConfigError(f"{channel.place} is no address", fix="write https://host/path") from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        # What the library says has the address in it, which may be a secret.
        raise RetryableError(
            f"{channel.place} does not answer: {type(error).__name__}", fix="see whether it is up"
        ) from error
    _judge(channel, answer.status, said)


def _printable(name: str, text: str) -> str:
    """What a header can hold; said without the text, which may be a secret."""
    if not text.isascii() or not text.isprintable():
        raise ConfigError(f"header {name} has characters that no header can hold", fix="correct its secret")
    return text


def _judge(channel: Webhook, status: int, said: str) -> None:
    if 200 <= status < 300:
        return
    what = f"{channel.place} answers {status}{f': {said}' if said else ''}"
    if status in _REFUSED:
        raise DataError(what, fix="correct `body` of the channel")
    if status in {408, 425, 429} or status >= 500:
        raise RetryableError(what, fix="it is tried again")
    raise ConfigError(what, fix="correct `url` and `headers` of the channel")


def _body(channel: Webhook, words: Words, secrets: Mapping[str, str]) -> tuple[bytes, str]:
    # Secrets come first: an alert's own text may look like the name of one.
    said = None if channel.body is None else changed_texts(channel.body, lambda text: _revealed(text, secrets))
    filled_in = dict(words.fields) if said is None else filled(said, words.fields)
    if channel.format == "form":
        assert isinstance(filled_in, dict)
        return urlencode(
            {name: str(value) for name, value in filled_in.items()}
        ).encode(), "application/x-www-form-urlencoded"
    return json.dumps(filled_in, ensure_ascii=False).encode(), "application/json"
