"""A picture of figures on a logarithmic scale: a row per method, a dot per series. Plain SVG, so that it needs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10
from pathlib import Path
from xml.sax.saxutils import escape

_LEFT, _RIGHT, _TOP, _ROW, _WIDTH = 230, 170, 60, 26, 900
_COLOURS = ("#1f6feb", "#d1660a")


@dataclass(frozen=True, slots=True)
class Row:
    """A method: of each series the figure (None: there is none), and a remark at the end of the row."""

    name: str
    values: Sequence[float | None]
    remark: str


def write_dots(path: Path, title: str, series: Sequence[str], rows: Sequence[Row], low: float, high: float) -> None:
    """`low` to `high` are the ends of the scale; what is less is drawn at its left end."""

    def at(value: float) -> float:
        share = (log10(max(value, low)) - log10(low)) / (log10(high) - log10(low))
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    height = _TOP + _ROW * len(rows) + 40
    parts = [f'<text x="12" y="22" font-size="15" font-weight="bold">{escape(title)}</text>']
    for number, name in enumerate(series):
        x = _LEFT + 160 * number
        parts.append(
            f'<circle cx="{x}" cy="40" r="5" fill="{_COLOURS[number]}"/><text x="{x + 10}" y="44">{name}</text>'
        )
    for power in range(round(log10(low)), round(log10(high)) + 1):
        x = at(10.0**power)
        parts.append(f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{_TOP - 8}" y2="{height - 36}" stroke="#ddd"/>')
        label = "0" if 10.0**power <= low else f"1e{power}"
        parts.append(f'<text x="{x:.0f}" y="{height - 18}" text-anchor="middle">{label}</text>')
    for number, row in enumerate(rows):
        y = _TOP + _ROW * number + 8
        parts.append(f'<text x="{_LEFT - 12}" y="{y + 4}" text-anchor="end">{escape(row.name)}</text>')
        for colour, value in zip(_COLOURS, row.values, strict=False):
            if value is not None:
                parts.append(f'<circle cx="{at(value):.1f}" cy="{y}" r="5" fill="{colour}" fill-opacity="0.8"/>')
        parts.append(f'<text x="{_WIDTH - _RIGHT + 12}" y="{y + 4}">{escape(row.remark)}</text>')
    style = 'font-family="sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" {style}>'
    white = f'<rect width="{_WIDTH}" height="{height}" fill="white"/>'
    path.write_text("\n".join([head, white, *parts, "</svg>", ""]))
