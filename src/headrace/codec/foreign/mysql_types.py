"""What a column is whose type is known by its name at MySQL, as canal tells it (``bigint(20) unsigned``)."""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa

_TYPE = re.compile(r"(\w+)(?:\((\d+)(?:,\s*(\d+))?\))?")
_INTEGERS: dict[str, tuple[pa.DataType, pa.DataType]] = {
    "tinyint": (pa.int8(), pa.uint8()),
    "smallint": (pa.int16(), pa.uint16()),
    "mediumint": (pa.int32(), pa.uint32()),
    "int": (pa.int32(), pa.uint32()),
    "integer": (pa.int32(), pa.uint32()),
    "bigint": (pa.int64(), pa.uint64()),
}
"""With and without a sign."""
_PLAIN: dict[str, pa.DataType] = {
    "float": pa.float32(),
    "double": pa.float64(),
    "bit": pa.uint64(),
    "year": pa.uint16(),
    "date": pa.date32(),
    "time": pa.duration("us"),
    "datetime": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    **dict.fromkeys(["binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector"], pa.binary()),
    **dict.fromkeys(["geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"], pa.binary()),
    **dict.fromkeys(["multipolygon", "geometrycollection", "geomcollection"], pa.binary()),
}


@lru_cache(maxsize=4096)
def mysql_type(source_type: str) -> tuple[pa.DataType, str]:
    """The Arrow type, and the name as headrace writes it (without widths of display); text for types that are not known."""
    lower = source_type.lower()
    found = _TYPE.match(lower)
    if found is None:
        return pa.utf8(), source_type
    name, first, second = found.groups()
    unsigned = " unsigned" if " unsigned" in lower else ""
    if name in _INTEGERS:
        return _INTEGERS[name][bool(unsigned)], f"{'int' if name == 'integer' else name}{unsigned}"
    if name in ("decimal", "numeric"):
        return decimal_type(int(first or 10), int(second or 0)), f"decimal({first or 10},{second or 0}){unsigned}"
    return _PLAIN.get(name, pa.utf8()), source_type


def decimal_type(precision: int, scale: int) -> pa.DataType:
    """The narrowest type that holds such decimals."""
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
