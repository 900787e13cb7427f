"""Tables of several shards in one target (`merge: true`): each row says in `_ums_source_` which table it is of, and that is in the key.

So the same key in two shards is two rows, `_ums_id_`, whose order means something within one source only, decides between changes of
one source only, and TRUNCATE, or a load that repairs, ends the rows of its own shard. Columns belong to all shards: what one has and
another has not is NULL in the other's rows, and a type takes the values of all.

The shards get their ALTERs at different times. The first that comes shapes the target; the others find their part done, under their own
statement's name and with the default that it says. A default is a value of one shard's old rows, so it is none of the target's: it is
written into that shard's rows, and into those of its older versions that come later (`Destination.filled`).
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from headrace.sinks.database.dialect import Target
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import Column, TableSchema
from headrace.ums.system_columns import SystemColumns


def marked(table: TableSchema, system: SystemColumns) -> TableSchema:
    """The table with `_ums_source_`, last in its key."""
    column = Column(system.source, pa.utf8(), "varchar(255)", nullable=False)
    return replace(table, columns=(*table.columns, column), key=(*table.key, column.name))


def marked_rows(batch: ChangeBatch, system: SystemColumns) -> ChangeBatch:
    """The changes of `marked` rows."""
    table = marked(batch.table, system)
    source: pa.Array[pa.StringScalar] = pa.repeat(pa.scalar(_name(table)), len(batch))
    return ChangeBatch(table, pa.RecordBatch.from_arrays([*batch.data.columns, source], schema=table.arrow_schema()))


def name_of(table: TableSchema) -> pa.Array[pa.StringScalar]:
    """What `_ums_source_` is in rows of a table, as a column of one row."""
    return pa.array([_name(table)], pa.utf8())


def is_shared(target: Target) -> bool:
    return target.system.source in target.key


def _name(table: TableSchema) -> str:
    return table.namespace.all_versions
