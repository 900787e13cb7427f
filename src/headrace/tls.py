"""Encryption of connections: the options that everything has which speaks TLS."""

from __future__ import annotations

import ssl
from typing import Self

from pydantic import model_validator

from headrace.errors import ConfigError
from headrace.model import LocalPath, Model


class Tls(Model):
    """Encryption of the connection. ``tls: {}`` trusts the system's authorities."""

    ca: LocalPath | None = None
    """PEM file with the authorities that the other side's certificate is checked against; the system's when left out."""
    certificate: LocalPath | None = None
    """PEM file with the client's certificate, where the other side asks for one."""
    key: LocalPath | None = None
    """PEM file with the private key of `certificate`."""

    @model_validator(mode="after")
    def _key_has_a_certificate(self) -> Self:
        if self.key is not None and self.certificate is None:
            raise ValueError("`key` is of no use without the certificate that it belongs to: add `certificate`")
        return self

    def context(self) -> ssl.SSLContext:
        """What a connection is made with; ConfigError when a file is not there, or not what it should be."""
        for name, path in (("ca", self.ca), ("certificate", self.certificate), ("key", self.key)):
            if path is not None and not path.is_file():
                raise ConfigError(f"there is no file {path}", fix=f"correct `{name}` in `tls`")
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except OSError as error:
            paths = ", ".join(str(path) for path in (self.ca, self.certificate, self.key) if path is not None)
            raise ConfigError(
                f"certificates for the connection could not be loaded out of {paths}: {error}",
                fix="give PEM files in `tls`, and the `key` that belongs to `certificate`",
            ) from error
        return context
