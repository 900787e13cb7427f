"""A picture of figures over time: a panel per unit, a line per series, marks where something happened. Plain SVG, so that it needs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

Points = Sequence[tuple[float, float]]
_LEFT, _RIGHT, _TOP, _PANEL, _GAP, _WIDTH = 70, 150, 40, 170, 44, 900
_COLOURS = ("#1f6feb", "#d1660a", "#2da44e", "#8250df", "#cf222e", "#57606a")


def write_lines(
    path: Path, title: str, panels: Mapping[str, Mapping[str, Points]], marks: Sequence[tuple[float, str]], until: float
) -> None:
    """`panels`: unit -> name of a line -> its (minute, value). `marks`: (minute, what happened)."""
    height = _TOP + (_PANEL + _GAP) * len(panels)
    parts = [f'<text x="12" y="22" font-size="15" font-weight="bold">{escape(title)}</text>']
    for number, (unit, lines) in enumerate(panels.items()):
        parts += _panel(unit, lines, marks, until, _TOP + (_PANEL + _GAP) * number)
    style = 'font-family="sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" {style}>'
    white = f'<rect width="{_WIDTH}" height="{height}" fill="white"/>'
    path.write_text("\n".join([head, white, *parts, "</svg>", ""]))


def _panel(
    unit: str, lines: Mapping[str, Points], marks: Sequence[tuple[float, str]], until: float, top: float
) -> list[str]:
    most = max((value for points in lines.values() for _, value in points), default=1.0) * 1.1 or 1.0
    bottom = top + _PANEL

    def x(minute: float) -> float:
        return _LEFT + minute / until * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return bottom - value / most * (_PANEL - 16)

    parts = [f'<text x="12" y="{top + 10:.0f}" fill="#57606a">{escape(unit)}</text>']
    for value in (0.0, most / 2, most):
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>'
        )
        parts.append(f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:,.0f}</text>')
    parts += [
        f'<text x="{x(minute):.0f}" y="{bottom + 16}" text-anchor="middle">{minute} min</text>'
        for minute in range(0, int(until) + 1, max(1, int(until) // 6))
    ]
    for minute, what in marks:
        parts.append(
            f'<line x1="{x(minute):.1f}" x2="{x(minute):.1f}" y1="{top + 16:.0f}" y2="{bottom}" stroke="#cf222e"'
            f' stroke-dasharray="2 3"><title>{escape(what)}</title></line>'
        )
    for number, (name, points) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        drawn = " ".join(f"{x(minute):.1f},{y(value):.1f}" for minute, value in points)
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        at = top + 28 + 18 * number
        parts.append(f'<text x="{_WIDTH - _RIGHT + 12}" y="{at}" fill="{colour}">{escape(name)}</text>')
    return parts
