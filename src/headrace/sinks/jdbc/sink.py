"""The JDBC sink: the database sink with any database that has a JDBC driver, through JPype.

What is stored, and when, is as in every database (sinks/database/sink.py). Rows are looked up, inserted and updated in sets (rows.py),
because there is no statement for that which all databases know.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from headrace.model import LocalPath
from headrace.sinks.base import Capabilities
from headrace.sinks.database.dialect import Address, Dialect
from headrace.sinks.database.sink import TablesConfig, TablesSink
from headrace.sinks.jdbc.dialect import Jdbc

_LOGIN = re.compile(r"[^/:@]*([/:][^/:@]*)?@")
"""A user, and what may be a password, in front of a host."""


def _listed(value: object) -> object:
    return value if isinstance(value, list | tuple) else [value]


class JdbcConfig(TablesConfig):
    """Delivers into tables of any database that has a JDBC driver."""

    type: Literal["jdbc"]
    url: str = Field(pattern="^jdbc:[^:]+:.")
    """As the driver's manual has it: ``jdbc:oracle:thin:@//host:1521/service``, ``jdbc:h2:tcp://host/./mart``."""
    driver: Annotated[tuple[LocalPath, ...], BeforeValidator(_listed), Field(min_length=1)]
    """The driver's jar, or a list of jars when it needs others. They must be there on every machine that delivers."""
    user: str | None = None
    """The user's name."""
    password: str | None = None
    """The user's password, best from the environment: ``${MART_PASSWORD}``."""
    properties: dict[str, str] = Field(default_factory=dict)
    """Further properties of the connection, as the driver's manual has them."""

    @field_validator("url")
    @classmethod
    def _has_no_password(cls, url: str) -> str:
        if "password" in url.lower() or re.search(r":[^@:/]+/[^@/]+@", url):
            raise ValueError("a password does not belong into `url`: write `user` and `password`")
        return url

    def address(self) -> Address:
        """What messages say of the database."""
        shown = _LOGIN.sub("", re.split("[?;]", self.url)[0], count=1)
        return Address("jdbc", "", 0, self.user or "", "", shown, {})

    def login(self) -> dict[str, str]:
        """The driver's properties."""
        named = {"user": self.user, "password": self.password}
        return {**self.properties, **{name: value for name, value in named.items() if value is not None}}


class JdbcSink(TablesSink):
    """One connection to one database."""

    Config = JdbcConfig
    capabilities = Capabilities(needs_key=True, remembers_position=True, scans=True, has_year_0=False)

    def __init__(self, config: JdbcConfig, flow: str) -> None:
        self._jdbc = config
        super().__init__(config, flow)

    def _new_dialect(self) -> Dialect:
        config = self._jdbc
        return Jdbc(config.url, config.driver, config.login(), config.address(), config.db_schema)
