"""Plots as SVG text: nothing to install, nothing to load, and a line of a diff where a figure changed."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Point = tuple[float, float]

WIDTH, HEIGHT = 760, 340
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 34, 46
INK, FAINT = "#334155", "#cbd5e1"
COLOURS = ("#1d4ed8", "#dc2626", "#059669", "#b45309", "#7c3aed", "#475569")
WIN, TIE, LOSS = "#059669", "#64748b", "#dc2626"


class Axis:
    """From values to pixels; a logarithmic one has ticks at 1, 2 and 5 times powers of ten."""

    def __init__(self, low: float, high: float, first: float, last: float, logarithmic: bool) -> None:
        self.logarithmic = logarithmic
        if not logarithmic:
            low = min(low, 0.0)
        self.low, self.high = self._scaled(low), self._scaled(high)
        if self.high <= self.low:
            self.high = self.low + 1
        self.first, self.last = first, last

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.logarithmic else value

    def __call__(self, value: float) -> float:
        return self.first + (self._scaled(value) - self.low) / (self.high - self.low) * (self.last - self.first)

    def ticks(self) -> list[float]:
        if self.logarithmic:
            powers = range(math.floor(self.low), math.ceil(self.high) + 1)
            steps = (1, 2, 5) if self.high - self.low < 3 else (1,)
            every = [m * 10.0**p for p in powers for m in steps]
        else:
            size = 10 ** math.floor(math.log10((self.high - self.low) / 2))
            step = next(s * size for s in (1, 2, 5, 10) if (self.high - self.low) / (s * size) <= 6)
            every = [i * step for i in range(math.ceil(self.high / step) + 1)]
        return [t for t in every if self.low - 1e-9 <= self._scaled(t) <= self.high + 1e-9]


def number(value: float) -> str:
    """Few digits: 0.05, 2, 350, 10k."""
    if value >= 10000:
        return f"{value / 1000:g}k"
    return f"{value:.3g}"


def text(x: float, y: float, words: str, anchor: str = "middle", colour: str = INK, size: int = 12) -> str:
    shown = html.escape(words)
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">{shown}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str = FAINT, width: float = 1) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}"/>'


def picture(title: str, parts: Sequence[str]) -> str:
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"',
            f'  role="img" aria-label="{html.escape(title, quote=True)}" font-family="system-ui, sans-serif">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            text(LEFT, 20, title, "start", size=14),
            *parts,
            "</svg>",
            "",
        )
    )


def grid(x: Axis | None, y: Axis, x_label: str, y_label: str) -> list[str]:
    parts = []
    for tick in y.ticks():
        parts += [line(LEFT, y(tick), WIDTH - RIGHT, y(tick)), text(LEFT - 6, y(tick) + 4, number(tick), "end")]
    if x:
        for tick in x.ticks():
            parts.append(line(x(tick), HEIGHT - BOTTOM, x(tick), HEIGHT - BOTTOM + 5, INK))
            parts.append(text(x(tick), HEIGHT - BOTTOM + 18, number(tick)))
    parts.append(line(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, INK))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    turned = f'<g transform="translate(14 {middle:.1f}) rotate(-90)">{text(0, 0, y_label)}</g>'
    return [*parts, turned]


def curves(
    title: str,
    series: Mapping[str, Sequence[Point]],
    x_label: str,
    y_label: str,
    *,
    log_x: bool = True,
    log_y: bool = True,
) -> str:
    """One curve per name through its points, with a legend."""
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points]
    x = Axis(min(xs), max(xs), LEFT + 8, WIDTH - RIGHT - 8, log_x)
    y = Axis(min(ys), max(ys) * 1.05, HEIGHT - BOTTOM - 4, TOP + 6, log_y)
    parts = grid(x, y, x_label, y_label)
    for i, (name, points) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)]
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if len(points) <= 40:
            parts += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="2.5" fill="{colour}"/>' for a, b in points]
        parts.append(text(WIDTH - RIGHT - 4, TOP + 12 + 16 * i, name, "end", colour))
    return picture(title, parts)


def ranked(title: str, ratios: Mapping[str, float], y_label: str, tie: float) -> str:
    """Ratios from the worst to the best as bars from 1; green wins, grey ties, red loses. Hovering names the model."""
    order = sorted(ratios.items(), key=lambda item: item[1])
    low, high = min(0.5, *ratios.values()), max(2.0, *ratios.values())
    y = Axis(low / 1.05, high * 1.05, HEIGHT - BOTTOM, TOP + 6, True)
    parts = grid(None, y, f"{len(order)} models, worst first", y_label)
    step = (WIDTH - RIGHT - LEFT) / len(order)
    for i, (name, ratio) in enumerate(order):
        colour = WIN if ratio > 1 + tie else LOSS if ratio < 1 / (1 + tie) else TIE
        top, bottom = min(y(ratio), y(1)), max(y(ratio), y(1))
        place = f'x="{LEFT + i * step + step * 0.1:.1f}" y="{top:.1f}"'
        size = f'width="{max(step * 0.8, 1):.1f}" height="{max(bottom - top, 1.5):.1f}"'
        label = html.escape(f"{name}: {ratio:.2f}x")
        parts.append(f'<rect {place} {size} fill="{colour}"><title>{label}</title></rect>')
    parts.append(line(LEFT, y(1), WIDTH - RIGHT, y(1), INK, 1.5))
    return picture(title, parts)
