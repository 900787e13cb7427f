"""The low watermark of an application, printed on the records that it sends, for the next application to read.

::

    header   headrace-watermark: 1772452800000000 web/raw      µs since 1970 | topology and flow
    record   key headrace-watermark, no value, the same header: where there was nothing else to send

It says: all rows of that flow with an earlier event time were committed before this record was written, on whichever partition. So who has
read it, then asks for the ends of all partitions and reads up to them, has all of these rows. The ends are those that writers see: a
transaction that is committed may not be shown to readers on all of its partitions yet.
"""

from __future__ import annotations

from dataclasses import dataclass

HEADER = "headrace-watermark"
ALONE = HEADER.encode()
"""The key of a record that has nothing but a watermark."""


@dataclass(frozen=True, slots=True)
class LowWatermark:
    """`by`: whose it is, topology and flow."""

    by: str
    us: int


Headers = list[tuple[str, str | bytes | None]]


def printed(low: LowWatermark | None) -> Headers:
    """The headers of a record."""
    return [] if low is None else [(HEADER, f"{low.us} {low.by}".encode())]


def read(headers: Headers | dict[str, str | bytes | None] | None) -> LowWatermark | None:
    """What is printed in headers; None when it is nothing, or nothing of ours."""
    for name, value in headers.items() if isinstance(headers, dict) else headers or ():
        if name == HEADER and isinstance(value, bytes):
            us, _, by = value.decode(errors="replace").partition(" ")
            if by and us.removeprefix("-").isdecimal():
                return LowWatermark(by, int(us))
    return None
