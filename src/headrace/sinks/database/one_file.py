"""What SQLite and DuckDB have in common: a database is a file, in which one transaction at a time writes, and a key cannot be altered."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import ConfigError, DataError
from headrace.sinks.database.dialect import Destination, Dialect, StoredColumn, Target
from headrace.sinks.database.stored import definition_of


class FileDialect(Dialect):
    """One file."""

    product: str
    """As messages call it."""

    def must_have_folder(self) -> None:
        """ConfigError when the folder of the file is not there."""
        path = self.address.database
        if not Path(path).absolute().parent.is_dir():
            raise ConfigError(f"the folder of {path} does not exist", fix="create it or correct the sink's `url`")

    @abstractmethod
    def begin(self) -> object:
        """Begins a transaction that writes, unless it has begun; waits for that of another."""

    @abstractmethod
    def made_for(self, target: Target) -> list[str]:
        """The statements that made what else belongs to the table: its indexes."""

    def quote(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def rehearse(self, target: Target, statement: str) -> None:
        self.run(statement)

    def must_not_be_key(self, target: Target, column: StoredColumn) -> None:
        """DataError for a column of the key, which cannot get another type."""
        if column.name.lower() in {name.lower() for name in target.key}:
            raise DataError(
                f"column '{column.name}' is in the key of {target.name} and has become {column.declared} in the source, "
                f"which {self.product} cannot change",
                fix=f"rename or drop the target table {target.name} and load it again",
            )

    def change_key(self, target: Target, columns: Sequence[StoredColumn]) -> None:
        """A new table takes the rows, the name, and what else was made for the old one."""
        stored = self.describe(target)
        assert stored is not None
        changed = {column.name: column for column in columns}
        in_key = {name.lower() for name in target.key}
        named = sorted(
            (changed.get(column.name, column) for column in stored.columns),
            key=lambda column: self.key_first and column.name.lower() not in in_key,
        )
        table, new = self.table(target), self.table(Target(f"_headrace_{target.name}", target.columns, target.key))
        names, key = (", ".join(map(self.quote, some)) for some in ([column.name for column in named], target.key))
        made = self.made_for(target)
        self.run(f"CREATE TABLE {new} ({', '.join(definition_of(self, c) for c in named)}, PRIMARY KEY ({key}))")
        self.run(f"INSERT INTO {new} ({names}) SELECT {names} FROM {table}")
        self.run(f"DROP TABLE {table}")
        self.run(f"ALTER TABLE {new} RENAME TO {self.quote(target.name)}")
        for statement in made:
            self.run(statement)

    @contextmanager
    def shaping(self, target: Target) -> Iterator[None]:
        self.commit()
        self.begin()  # keeps all others out
        try:
            yield
            self.commit()
        except BaseException:
            self.rollback()
            raise

    def upsert_of(self, to: Destination, rows: str) -> str:
        """The statement that stores what VALUES or a SELECT gives."""
        names, key = (", ".join(map(self.quote, some)) for some in (to.names, to.target.key))
        replaced = ", ".join(f"{name} = excluded.{name}" for name in map(self.quote, to.replaced))
        id_ = self.quote(to.target.system.id)
        return (
            f"INSERT INTO {self.table(to.target)} AS target ({names}) {rows} "
            f"ON CONFLICT ({key}) DO UPDATE SET {replaced} WHERE excluded.{id_} > target.{id_}"
        )
