"""Charts as static SVG. Each has a title, a description and a table of its values, which is also what a pointer is
told: so nothing in a chart is for eyes only, and nothing is written twice."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from saccade.view.markup import escape, missing, table

WIDTH, HEIGHT = 560, 240  # in the chart's own units; a page scales them
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 12, 30
MAX_CURVE_POINTS = 600  # values of a curve: more than there are points on a screen
FEW_ROWS = 10  # rows that say little
FormatValue = Callable[[float], str]


@dataclass(frozen=True)
class Curve:
    """One line: values by update. `marked` draws each value as a point, for those that are few."""

    name: str
    points: Mapping[int, float]
    marked: bool = False


@dataclass(frozen=True)
class Scale:
    """Where values stand along an axis from `start` to `end`, and which of them are named."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]

    @classmethod
    def round(cls, low: float, high: float, start: float, end: float) -> Scale:
        """A scale that begins and ends with round numbers and holds both."""
        high = high if high > low else low + (abs(low) or 1.0)
        step = _round_step((high - low) / 5)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        ticks = tuple(step * number for number in range(first, last + 1))
        return cls(ticks[0], ticks[-1], start, end, ticks)

    @classmethod
    def until(cls, last: int, start: float, end: float) -> Scale:
        """From 0 to the very last update, with round numbers between."""
        last = max(1, last)
        step = math.ceil(_round_step(last / 6))
        return cls(0, last, start, end, tuple(range(0, last + 1, step)))

    def __call__(self, value: float) -> float:
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 1)

    def named(self) -> FormatValue:
        """As many decimals as the ticks need."""
        step = self.ticks[1] - self.ticks[0]
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        return lambda value: f"{value + 0.0:,.{decimals}f}" if decimals < 5 else f"{value:.0e}"


def _round_step(least: float) -> float:
    """The next of 1, 2, 5, 10, …"""
    power = 10.0 ** math.floor(math.log10(least))
    return next(nice * power for nice in (1, 2, 5, 10) if nice * power >= least * (1 - 1e-9))


# ── charts ──


def line_chart(
    title: str, curves: Sequence[Curve], show: FormatValue, *, best: int | None = None, from_zero: bool = False
) -> str:
    """Curves against updates; `best` is the update of the best checkpoint. Curves without a value are left out."""
    nth = math.ceil(max((len(each.points) for each in curves), default=0) / MAX_CURVE_POINTS)
    curves = [Curve(each.name, _thinned(each.points, nth), each.marked) for each in curves if each.points]
    if not curves:
        return _figure(title, [], f"<p>{missing('No values yet.')}</p>", "")
    heights = [value for each in curves for value in each.points.values()]
    steps = sorted({step for each in curves for step in each.points})
    across = Scale.until(steps[-1], LEFT, WIDTH - RIGHT)
    up = Scale.round(0 if from_zero else min(heights), max(heights), HEIGHT - BOTTOM, TOP)
    body = [_grid(across, up), _best_mark(best, across) if best is not None and best <= across.high else ""]
    body += [_line(number, each, across, up) for number, each in enumerate(curves, 1)]
    described = f"{title} against updates, from 0 to {steps[-1]:,}. " + " ".join(
        _described(each, show) for each in curves
    )
    rows = [[f"{step:,}", *(show(c.points[step]) if step in c.points else "" for c in curves)] for step in steps]
    values = table("values", title, ["update", *(escape(each.name) for each in curves)], rows)
    scales = f'data-across="{across.low} {across.high} {across.start} {across.end}"'
    scales += f' data-up="{up.low} {up.high} {up.start} {up.end}"'
    listed = f"Values, one in {nth} and the last" if nth > 1 else "Values"
    svg = _svg(title, described, "".join(body), scales)
    return _figure(title, [each.name for each in curves], svg, _details(listed, values))


def bar_chart(
    title: str, heading: str, labels: Sequence[str], counts: Sequence[int], bars: Mapping[str, Sequence[float]]
) -> str:
    """Groups of bars from 0 to 100, one group a label; `heading` says what labels are, `counts` stand under them."""
    up = Scale.round(0, 100, HEIGHT - BOTTOM - 16, TOP)
    room = (WIDTH - LEFT - RIGHT) / max(1, len(labels))
    wide = min(34.0, room * 0.7 / max(1, len(bars)))
    body = [_grid(None, up)]
    for place, (label, number) in enumerate(zip(labels, counts, strict=True)):
        middle = round(LEFT + room * (place + 0.5), 1)
        for series, (name, values) in enumerate(bars.items(), 1):
            left = round(middle + wide * (series - 1 - len(bars) / 2), 1)
            top = up(max(0.0, min(100.0, values[place])))
            told = escape(f"{label}: {name} {values[place]:.1f}, {number:,} rows")
            few = " few" if number < FEW_ROWS else ""
            body.append(
                f'<rect class="bar s{series}{few}" x="{left}" y="{top}" width="{wide - 2:.1f}" '
                f'height="{up.start - top:.1f}"><title>{told}</title></rect>'
            )
        body.append(f'<text class="tick middle" x="{middle}" y="{up.start + 17:.1f}">{escape(label)}</text>')
        body.append(f'<text class="tick middle faint" x="{middle}" y="{up.start + 34:.1f}">{number:,}</text>')
    rows = [
        [label, f"{number:,}", *(f"{values[place]:.1f}" for values in bars.values())]
        for place, (label, number) in enumerate(zip(labels, counts, strict=True))
    ]
    described = f"{title}, by {heading}. " + " ".join(f"{row[0]}: {', '.join(row[2:])}." for row in rows)
    svg = _svg(title, described, "".join(body), "")
    values = _details("Values", table("values", title, [heading, "rows", *bars], rows))
    return _figure(title, list(bars), svg, values, "bars")


# ── their parts ──


def _thinned(points: Mapping[int, float], nth: int) -> Mapping[int, float]:
    """Every nth value and the last, so that the page of a long training stays small."""
    steps = sorted(points)
    return {step: points[step] for step in sorted({*steps[::nth], steps[-1]})}


def _grid(across: Scale | None, up: Scale) -> str:
    named = up.named()
    lines = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(tick)}" y2="{up(tick)}"/>'
        f'<text class="tick end" x="{LEFT - 8}" y="{up(tick) + 4:.1f}">{named(tick)}</text>'
        for tick in up.ticks
    ]
    if across is not None:
        lines += [
            f'<text class="tick middle" x="{across(tick)}" y="{HEIGHT - BOTTOM + 20}">{tick:,.0f}</text>'
            for tick in across.ticks
        ]
    return "".join(lines)


def _best_mark(best: int, across: Scale) -> str:
    """A hairline where the best checkpoint is."""
    x = across(best)
    return f'<line class="best" x1="{x}" x2="{x}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'


def _line(number: int, curve: Curve, across: Scale, up: Scale) -> str:
    places = [(across(step), up(value)) for step, value in sorted(curve.points.items())]
    path = " ".join(f"{x} {y}" for x, y in places)
    dots = places if curve.marked or len(places) == 1 else []
    circles = "".join(f'<circle class="dot s{number}" cx="{x}" cy="{y}" r="3"/>' for x, y in dots)
    return f'<polyline class="line s{number}" points="{path}"/>{circles}'


def _described(curve: Curve, show: FormatValue) -> str:
    """A curve in words."""
    first, last, values = min(curve.points), max(curve.points), curve.points.values()
    ends = f"{show(curve.points[first])} at update {first:,}, {show(curve.points[last])} at update {last:,}"
    return f"{curve.name}: {ends}, lowest {show(min(values))}, highest {show(max(values))}."


def _svg(title: str, described: str, body: str, attributes: str) -> str:
    name = f"chart-{re.sub(r'[^a-z0-9]+', '-', title.lower())}"  # no two charts of a page have the same title
    return (
        f'<div class="plot"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{name} {name}-told" '
        f'{attributes}><title id="{name}">{escape(title)}</title><desc id="{name}-told">{escape(described)}</desc>'
        f"{body}</svg></div>"
    )


def _details(summary: str, values: str) -> str:
    return f"<details><summary>{summary}</summary>{values}</details>"


def _figure(title: str, names: Sequence[str], drawn: str, details: str, legend_of: str = "lines") -> str:
    legend = "".join(f'<li class="s{number}">{escape(name)}</li>' for number, name in enumerate(names, 1))
    listed = f'<ul class="legend {legend_of}">{legend}</ul>' if len(names) > 1 else ""
    return f'<figure class="chart"><figcaption><h3>{escape(title)}</h3>{listed}</figcaption>{drawn}{details}</figure>'
