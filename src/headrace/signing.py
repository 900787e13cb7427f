"""Requests that are signed as Standard Webhooks have it, so that a receiver knows who sent them, and each of them by its id.

::

    webhook-id: 5f0c…                 the same whenever the same is sent again
    webhook-timestamp: 1782345600     when it was sent, seconds since 1970
    webhook-signature: v1,K5oZ…       base64 of the HMAC-SHA256, under the secret, of ``id.timestamp.body``
"""

from __future__ import annotations

import hmac
import time
from base64 import b64decode, b64encode


def webhook_headers(id_: str, body: bytes, secret: str | None) -> dict[str, str]:
    """The three headers; two without a secret. ValueError for a secret that is none (`signing_key`)."""
    now = str(int(time.time()))
    headers = {"webhook-id": id_, "webhook-timestamp": now}
    if secret is not None:
        signed = hmac.digest(signing_key(secret), f"{id_}.{now}.".encode() + body, "sha256")
        headers["webhook-signature"] = f"v1,{b64encode(signed).decode()}"
    return headers


def signing_key(secret: str) -> bytes:
    """The bytes of a secret: ``whsec_`` and base64, or any text. ValueError when it begins so and is no base64."""
    if not secret.startswith("whsec_"):
        return secret.encode()
    try:
        return b64decode(secret.removeprefix("whsec_"), validate=True)
    except ValueError as error:
        raise ValueError("behind whsec_ the secret must be base64") from error
