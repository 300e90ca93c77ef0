"""Charts as static SVG. Each has a title, a description and a table of its values for screen readers. The script of the
report shows the values at the pointer; it takes them from the same table."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from saccade.view.markup import escape, missing, table

WIDTH, HEIGHT = 560, 240  # the size of the SVG's viewBox; the page scales it
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 12, 30  # margins for the axis labels
MAX_CURVE_POINTS = 600  # more points than this cannot be told apart on a screen
MIN_RELIABLE_ROWS = 10  # bars that stand for fewer rows are drawn pale
FormatValue = Callable[[float], str]


@dataclass(frozen=True)
class Curve:
    """One line of a chart: values by update. `dots` also draws each value as a dot."""

    name: str
    points: Mapping[int, float]
    dots: bool = False


@dataclass(frozen=True)
class Scale:
    """Maps values from `low` to `high` onto coordinates from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]

    @classmethod
    def with_round_ends(cls, low: float, high: float, start: float, end: float) -> Scale:
        """A scale that contains both values and begins and ends with round numbers."""
        high = high if high > low else low + (abs(low) or 1.0)
        step = _round_step((high - low) / 5)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        ticks = tuple(step * number for number in range(first, last + 1))
        return cls(ticks[0], ticks[-1], start, end, ticks)

    @classmethod
    def until(cls, last: int, start: float, end: float) -> Scale:
        """A scale from 0 to exactly the last update, with ticks at round numbers."""
        last = max(1, last)
        step = math.ceil(_round_step(last / 6))
        return cls(0, last, start, end, tuple(range(0, last + 1, step)))

    def __call__(self, value: float) -> float:
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 1)

    def tick_format(self) -> FormatValue:
        """Formats a tick with as many decimals as are needed to tell the ticks apart."""
        step = self.ticks[1] - self.ticks[0]
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        return lambda value: f"{value + 0.0:,.{decimals}f}" if decimals < 5 else f"{value:.0e}"


def _round_step(minimum: float) -> float:
    """The smallest step of at least `minimum` that is 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(minimum))
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= minimum * (1 - 1e-9))


# ── charts ──


def line_chart(
    title: str,
    curves: Sequence[Curve],
    format_value: FormatValue,
    *,
    best: int | None = None,
    from_zero: bool = False,
) -> str:
    """Curves over updates; `best` is the update of the best checkpoint. Curves without a value are left out."""
    stride = math.ceil(max((len(curve.points) for curve in curves), default=0) / MAX_CURVE_POINTS)
    curves = [Curve(curve.name, _thin_out(curve.points, stride), curve.dots) for curve in curves if curve.points]
    if not curves:
        return _figure(title, [], f"<p>{missing('No values yet.')}</p>", "")
    values = [value for curve in curves for value in curve.points.values()]
    steps = sorted({step for curve in curves for step in curve.points})
    x_scale = Scale.until(steps[-1], LEFT, WIDTH - RIGHT)
    y_scale = Scale.with_round_ends(0 if from_zero else min(values), max(values), HEIGHT - BOTTOM, TOP)
    body = [_grid(x_scale, y_scale)]
    body.append(_best_checkpoint_line(best, x_scale) if best is not None and best <= x_scale.high else "")
    body += [_line(number, curve, x_scale, y_scale) for number, curve in enumerate(curves, 1)]
    description = f"{title} over updates, from 0 to {steps[-1]:,}. " + " ".join(
        _describe(curve, format_value) for curve in curves
    )
    rows = [
        [f"{step:,}", *(format_value(c.points[step]) if step in c.points else "" for c in curves)] for step in steps
    ]
    value_table = table("values", title, ["update", *(escape(curve.name) for curve in curves)], rows)
    scales = f'data-x-scale="{x_scale.low} {x_scale.high} {x_scale.start} {x_scale.end}"'
    scales += f' data-y-scale="{y_scale.low} {y_scale.high} {y_scale.start} {y_scale.end}"'
    summary = f"Values (one in {stride}, and the last)" if stride > 1 else "Values"
    svg = _svg(title, description, "".join(body), scales)
    return _figure(title, [curve.name for curve in curves], svg, _details(summary, value_table))


def bar_chart(
    title: str, heading: str, labels: Sequence[str], counts: Sequence[int], bars: Mapping[str, Sequence[float]]
) -> str:
    """Groups of bars from 0 to 100, one group per label. `heading` says what the labels are; each group shows its
    label and its number of rows, from `counts`."""
    y_scale = Scale.with_round_ends(0, 100, HEIGHT - BOTTOM - 16, TOP)
    group_width = (WIDTH - LEFT - RIGHT) / max(1, len(labels))
    bar_width = min(34.0, group_width * 0.7 / max(1, len(bars)))
    body = [_grid(None, y_scale)]
    for group, (label, count) in enumerate(zip(labels, counts, strict=True)):
        middle = round(LEFT + group_width * (group + 0.5), 1)
        for series, (name, values) in enumerate(bars.items(), 1):
            left = round(middle + bar_width * (series - 1 - len(bars) / 2), 1)
            top = y_scale(max(0.0, min(100.0, values[group])))
            tooltip = escape(f"{label}: {name} {values[group]:.1f}, {count:,} rows")
            few = " few" if count < MIN_RELIABLE_ROWS else ""
            body.append(
                f'<rect class="bar s{series}{few}" x="{left}" y="{top}" width="{bar_width - 2:.1f}" '
                f'height="{y_scale.start - top:.1f}"><title>{tooltip}</title></rect>'
            )
        body.append(f'<text class="tick middle" x="{middle}" y="{y_scale.start + 17:.1f}">{escape(label)}</text>')
        body.append(f'<text class="tick middle faint" x="{middle}" y="{y_scale.start + 34:.1f}">{count:,}</text>')
    rows = [
        [label, f"{count:,}", *(f"{values[group]:.1f}" for values in bars.values())]
        for group, (label, count) in enumerate(zip(labels, counts, strict=True))
    ]
    description = f"{title}. " + " ".join(f"{row[0]}: {', '.join(row[2:])}." for row in rows)
    svg = _svg(title, description, "".join(body), "")
    value_table = _details("Values", table("values", title, [heading, "rows", *bars], rows))
    return _figure(title, list(bars), svg, value_table, "bars")


# ── the elements of a chart ──


def _thin_out(points: Mapping[int, float], stride: int) -> Mapping[int, float]:
    """Every `stride`-th value and the last one, so that the page of a long training stays small."""
    steps = sorted(points)
    return {step: points[step] for step in sorted({*steps[::stride], steps[-1]})}


def _grid(x_scale: Scale | None, y_scale: Scale) -> str:
    format_tick = y_scale.tick_format()
    lines = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_scale(tick)}" y2="{y_scale(tick)}"/>'
        f'<text class="tick end" x="{LEFT - 8}" y="{y_scale(tick) + 4:.1f}">{format_tick(tick)}</text>'
        for tick in y_scale.ticks
    ]
    if x_scale is not None:
        lines += [
            f'<text class="tick middle" x="{x_scale(tick)}" y="{HEIGHT - BOTTOM + 20}">{tick:,.0f}</text>'
            for tick in x_scale.ticks
        ]
    return "".join(lines)


def _best_checkpoint_line(best: int, x_scale: Scale) -> str:
    x = x_scale(best)
    return f'<line class="best" x1="{x}" x2="{x}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'


def _line(number: int, curve: Curve, x_scale: Scale, y_scale: Scale) -> str:
    coordinates = [(x_scale(step), y_scale(value)) for step, value in sorted(curve.points.items())]
    path = " ".join(f"{x} {y}" for x, y in coordinates)
    dots = coordinates if curve.dots or len(coordinates) == 1 else []
    circles = "".join(f'<circle class="dot s{number}" cx="{x}" cy="{y}" r="3"/>' for x, y in dots)
    return f'<polyline class="line s{number}" points="{path}"/>{circles}'


def _describe(curve: Curve, format_value: FormatValue) -> str:
    """The ends, the minimum and the maximum of a curve as a sentence for screen readers."""
    values = curve.points.values()
    ends = ", ".join(
        f"{format_value(curve.points[step])} at update {step:,}" for step in (min(curve.points), max(curve.points))
    )
    return f"{curve.name}: {ends}, lowest {format_value(min(values))}, highest {format_value(max(values))}."


def _svg(title: str, description: str, body: str, attributes: str) -> str:
    name = f"chart-{re.sub(r'[^a-z0-9]+', '-', title.lower())}"  # titles of charts are unique on a page
    return (
        f'<div class="plot"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{name} {name}-description" '
        f'{attributes}><title id="{name}">{escape(title)}</title>'
        f'<desc id="{name}-description">{escape(description)}</desc>{body}</svg></div>'
    )


def _details(summary: str, content: str) -> str:
    return f"<details><summary>{summary}</summary>{content}</details>"


def _figure(title: str, names: Sequence[str], drawing: str, details: str, legend_class: str = "lines") -> str:
    entries = "".join(f'<li class="s{number}">{escape(name)}</li>' for number, name in enumerate(names, 1))
    legend = f'<ul class="legend {legend_class}">{entries}</ul>' if len(names) > 1 else ""
    caption = f"<figcaption><h3>{escape(title)}</h3>{legend}</figcaption>"
    return f'<figure class="chart">{caption}{drawing}{details}</figure>'
