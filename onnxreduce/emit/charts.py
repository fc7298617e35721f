"""Charts as inline SVG that stretches with the page, under HTML labels that do not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from onnxreduce.emit.escape import escaped
from onnxreduce.tensors import Array

BOX = 1000
"""The chart's own units, across and down."""

LARGEST_STEP = 12
"""Decades beyond this many get a line only every other one, and so on."""


@dataclass(frozen=True)
class LogScale:
    """A logarithmic axis; numbers at or below the floor lie on it."""

    low: float
    high: float

    @classmethod
    def around(cls, numbers: Iterable[float], floor: float) -> LogScale:
        """From the decade below the smallest number above the floor to the one above the
        largest."""
        usable = [n for n in numbers if math.isfinite(n) and n > floor]
        if not usable:
            return cls(floor, floor * 10)
        low = 10.0 ** math.floor(math.log10(min(usable)))
        high = 10.0 ** math.ceil(math.log10(max(usable)))
        return cls(low, high if high > low else low * 10)

    def share(self, number: float) -> float:
        """0 at the low end, 1 at the high end."""
        if math.isinf(number) and number > 0:
            return 1.0
        if not number > self.low:
            return 0.0
        return min(1.0, math.log(number / self.low) / math.log(self.high / self.low))

    def ticks(self) -> list[float]:
        first, last = round(math.log10(self.low)), math.floor(math.log10(self.high) + 1e-9)
        step = max(1, math.ceil((last - first) / LARGEST_STEP * 2))
        return [10.0**power for power in range(first, last + 1, step)]


def tick(number: float) -> str:
    """A power of ten, short: 1k, 10M, 1e-05."""
    for unit, divisor in (("M", 1e6), ("k", 1e3)):
        if divisor <= number < divisor * 1000:
            return f"{number / divisor:g}{unit}"
    return f"{number:g}"


@dataclass(frozen=True)
class Series:
    """A line of steps: each value holds from its x to the next.

    Attributes:
        css: class of the line (``s1``), which also colours its area (``a1``) and dots.
        points: x and value.
        tips: what a dot says, one a point.
    """

    css: str
    points: Sequence[tuple[float, float]]
    tips: Sequence[str]


def steps(series: Sequence[Series], x_end: float, x_title: str, height: int = 280) -> str:
    """Lines of steps over a logarithmic y axis that begins at 1."""
    top = LogScale.around([v for s in series for _, v in s.points], 0.5).high
    scale = LogScale(1.0, max(10.0, top))
    x_end = max(x_end, 1.0)
    drawn = [_grid(scale)]
    for each in series:
        places = [(x / x_end * BOX, (1 - scale.share(v)) * BOX) for x, v in each.points]
        if not places:
            continue
        line = f"M{places[0][0]:.1f} {places[0][1]:.1f}"
        line += "".join(f"H{x:.1f}V{y:.1f}" for x, y in places[1:]) + f"H{BOX}"
        drawn.append(f'<path class="a{each.css[1:]}" d="{line}V{BOX}H{places[0][0]:.1f}Z"/>')
        drawn.append(f'<path class="{each.css}" d="{line}"/>')
        drawn += [_dot(x, y, each.css, tip) for (x, y), tip in zip(places, each.tips, strict=True)]
    labels = _y_labels(scale) + x_labels(x_end, x_title)
    return plot("".join(drawn), labels, height)


def scatter(
    points: Sequence[tuple[float, float, str, str]],
    x_end: float,
    limit: float | None,
    tags: Sequence[tuple[float, float, str]],
    x_title: str,
    height: int = 300,
) -> str:
    """Dots over a logarithmic y axis.

    Args:
        points: x, value, class and tooltip.
        x_end: where the x axis, which begins at 0, ends.
        limit: a value that a dashed line marks.
        tags: x, value and text of the dots that a label points at.
        x_title: what x counts.
        height: in pixels.
    """
    numbers = [value for _, value, _, _ in points]
    floor = 1e-12
    scale = LogScale.around([*numbers, *([limit] if limit else [])], floor)
    scale = LogScale(scale.low, scale.high * 5) if tags else scale  # room for what they say
    x_end = max(x_end, 1.0)

    def place(x: float, value: float) -> tuple[float, float]:
        return x / x_end * BOX, (1 - scale.share(value)) * BOX

    drawn = [_grid(scale)]
    if limit:
        y = place(0, limit)[1]
        drawn.append(f'<line class="limit" x1="0" x2="{BOX}" y1="{y:.1f}" y2="{y:.1f}"/>')
    for x, value, _ in tags:
        at = place(x, value)
        drawn.append(
            f'<line class="mark" x1="{at[0]:.1f}" x2="{at[0]:.1f}" y1="{at[1]:.1f}" y2="{BOX}"/>'
        )
    order = {"ok": 0, "pass": 1, "born": 2}
    for x, value, css, tip in sorted(points, key=lambda point: order.get(point[2], 0)):
        drawn.append(_dot(*place(x, value), css, tip))
    labels = _y_labels(scale) + x_labels(x_end, x_title)
    for x, value, text in tags:
        labels += _tag(*place(x, value), text)
    return plot("".join(drawn), labels, height)


def histogram(expected: Array, actual: Array, height: int = 150) -> str:
    """The finite elements of two tensors, counted over one range; counts on a square-root scale,
    so that rare values are seen beside frequent ones."""
    sides = [side[np.isfinite(side)] for side in (expected, actual)]
    both = np.concatenate(sides) if any(side.size for side in sides) else np.zeros(1)
    low, high = float(both.min()), float(both.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    with np.errstate(over="ignore", invalid="ignore"):
        if not math.isfinite(high - low):
            return ""
        bins = np.linspace(low, high, 61)
        counts = [np.sqrt(np.histogram(side, bins)[0]) for side in sides]
    most = max(float(c.max()) for c in counts) or 1.0
    drawn = f'<line class="grid" x1="0" x2="{BOX}" y1="{BOX}" y2="{BOX}"/>'
    for css, heights in zip(("1", "2"), counts, strict=True):
        width = BOX / len(heights)
        path = f"M0 {BOX}" + "".join(
            f"V{BOX - share / most * BOX:.1f}H{(number + 1) * width:.1f}"
            for number, share in enumerate(heights)
        )
        drawn += f'<path class="a{css}" d="{path}V{BOX}Z"/><path class="s{css}" d="{path}V{BOX}"/>'
    labels = (
        f'<span class="x start" style="left:0">{low:.3g}</span>'
        f'<span class="x end" style="right:0">{high:.3g}</span>'
    )
    return plot(drawn, labels, height)


def plot(drawn: str, labels: str, height: int) -> str:
    """Lines that stretch, and labels above them."""
    return (
        f'<div class="plot" style="height:{height}px"><svg viewBox="0 0 {BOX} {BOX}" '
        f'preserveAspectRatio="none" aria-hidden="true">{drawn}</svg>{labels}</div>'
    )


def x_labels(end: float, title: str) -> str:
    """A few round numbers below the chart, and at its end what they count."""
    step = _round_step(end / 5)
    found = []
    number = 0.0
    while number < end * 0.6:
        css = "x start" if number == 0 else "x"
        found.append(
            f'<span class="{css}" style="left:{number / end * 100:.2f}%">{number:,g}</span>'
        )
        number += step
    found.append(f'<span class="x end" style="right:0">{end:,g} {escaped(title)}</span>')
    return "".join(found)


def _round_step(size: float) -> float:
    power = 10.0 ** math.floor(math.log10(max(size, 1)))
    return float(next(factor * power for factor in (1, 2, 5, 10) if factor * power >= size))


def _grid(scale: LogScale) -> str:
    lines = []
    for number in scale.ticks():
        y = (1 - scale.share(number)) * BOX
        lines.append(f'<line class="grid" x1="0" x2="{BOX}" y1="{y:.1f}" y2="{y:.1f}"/>')
    return "".join(lines)


def _y_labels(scale: LogScale) -> str:
    return "".join(
        f'<span class="y" style="top:{(1 - scale.share(number)) * 100:.2f}%">{tick(number)}</span>'
        for number in scale.ticks()
    )


def _dot(x: float, y: float, css: str, tip: str) -> str:
    # A line of no length with round ends stays round however the chart is stretched.
    return f'<path class="dot {css}" d="M{x:.1f} {y:.1f}h0"><title>{escaped(tip)}</title></path>'


def _tag(x: float, y: float, text: str) -> str:
    side = "l" if x < BOX * 0.2 else "r" if x > BOX * 0.8 else ""
    return (
        f'<span class="tag {side}" style="left:{x / BOX * 100:.2f}%;'
        f'top:{y / BOX * 100:.2f}%">{escaped(text)}</span>'
    )
