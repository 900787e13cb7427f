"""placeholder until merged"""

from __future__ import annotations
from dataclasses import dataclass
from pathlib import Path
from headrace.ums.schema import Column, TableSchema, Namespace


@dataclass(frozen=True)
class Description:
    schema: str
    table: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]


class SchemaHistory:
    def __init__(self, path: Path, source: str) -> None:
        self.source = source
        self._v: dict = {}

    def load(self):
        pass

    def save(self):
        pass

    def tables(self):
        return []

    def saw_statement(self, *a):
        pass

    def table(self, d, id_):
        vs = self._v.setdefault((d.schema, d.table), [])
        if not vs or vs[-1][1].columns != d.columns:
            vs.append((id_, TableSchema(Namespace("mysql", self.source, d.schema, d.table, len(vs)), d.columns, d.key)))
        return vs[-1][1]
