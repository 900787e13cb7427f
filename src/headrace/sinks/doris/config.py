"""How a Doris cluster is reached."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from headrace.model import Duration, Model
from headrace.sinks.doris.http import Place
from headrace.tls import Tls


class ClusterConfig(Model):
    """How a Doris cluster is reached."""

    frontends: Annotated[list[str], Field(min_length=1)]
    """HTTP addresses of frontends, ``host:8030``, tried in turn."""
    query: Annotated[str, Field(pattern=r"^[^\s:,]+:\d+$")]
    """A frontend's MySQL port, ``host:9030``, or that of a balancer before them."""
    backends: list[str] = Field(default_factory=list)
    """Backends that a frontend may send loads on to, ``host:8040``, besides those that it lists itself."""
    addresses: dict[str, str] = Field(default_factory=dict)
    """Where a backend is reached that is named otherwise: ``{be-0.be:8040: 10.0.0.7:18040}``."""
    user: str = "root"
    """Needs LOAD and SELECT on the database, and CREATE and ALTER where tables are made."""
    password: str = ""
    """The user's."""
    tls: Tls | None = None
    """Encrypts the connections, HTTP and MySQL."""
    timeout: Annotated[Duration, Field(ge=0.1)] = 60.0
    """How long a server may take for an answer before that counts as an outage. A busy frontend takes some seconds."""

    @field_validator("frontends", "backends")
    @classmethod
    def _are_places(cls, places: list[str]) -> list[str]:
        for place in places:
            Place.parse(place)
        return places

    @field_validator("addresses")
    @classmethod
    def _are_pairs(cls, addresses: dict[str, str]) -> dict[str, str]:
        for place in (*addresses, *addresses.values()):
            Place.parse(place)
        return addresses
