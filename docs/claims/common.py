"""Shared by the scripts of this folder: the recipe of the copying task, the picture style and the page tables."""

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAGES = Path(__file__).parent
IMAGES = PAGES.parent / "images"

# Distinguishable with color blindness. Pictures have a white background, also on dark pages.
BLUE, RED, GREEN, ORANGE, PURPLE, GRAY = "#0b62a4", "#c8402f", "#1b8a5a", "#d98200", "#7b4ab0", "#6b6b6b"
TABLES = re.compile(r"(<!-- tables -->\n).*?(<!-- end of tables -->)", re.DOTALL)


def copy_recipe(
    text: dict[str, Any], cross: Any, dim: int, seed: int, dev_rows: int, train: dict[str, Any]
) -> dict[str, Any]:
    """The recipe of a GRU encoder-decoder that learns to copy strings. `cross` is the context of its decoder."""
    text = {"kind": "copy", "seed": seed} | text
    return {
        "seed": seed,
        "data": {
            "train": text | {"split": "train", "rows": 20_000},
            "dev": text | {"split": "dev", "rows": dev_rows},
            "tokenizer": "words",
            "longest": 64,
        },
        "task": {"kind": "translation", "smoothing": 0.0},
        "model": {
            "dim": dim,
            "dropout": {"residual": 0.0, "embedding": 0.0},
            "encoder": {"kind": "recurrent", "cell": "gru", "bidirectional": True},
            "decoder": {"kind": "recurrent", "cell": "gru", "cross": cross},
        },
        "train": {
            "schedule": {"kind": "linear", "rate": 0.004, "warmup": 50},
            "validate_every": train["updates"],
            **train,
        },
        "decode": {"search": "greedy"},
    }


def panels(columns: int, widths: Sequence[float] | None = None, height: float = 3.2) -> "tuple[Figure, list[Axes]]":
    """A figure with axes side by side, for a file (no display is needed)."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 8.5, "axes.titlesize": 9.5, "axes.titlelocation": "left", "lines.linewidth": 1.6})
    figure, axes = plt.subplots(
        1, columns, figsize=(9, height), squeeze=False, layout="constrained", gridspec_kw={"width_ratios": widths}
    )
    for panel in axes[0]:
        panel.grid(True, color="#dddddd", linewidth=0.5)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, list(axes[0])


def label(axes: "Axes", text: str, x: float, y: float, color: str, right: float = 4, up: float = 0) -> None:
    """Label a line directly in its color, `right` and `up` points away from (x, y). It replaces a legend."""
    axes.annotate(text, (x, y), (right, up), textcoords="offset points", va="center", color=color)


def save(figure: "Figure", name: str) -> None:
    """Write docs/images/claims-NAME.png, with 256 colors and no metadata, so that it is small and reproducible."""
    from PIL import Image

    png, path = io.BytesIO(), IMAGES / f"claims-{name}.png"
    figure.savefig(png, dpi=120, facecolor="white")
    Image.open(png).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        path, optimize=True
    )
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def number(value: float, digits: int = 2) -> str:
    """Format a number with `digits` significant digits: 0.38, 1,046 or 2.8e-16."""
    if 1e-3 <= abs(value) < 1e4:
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.{digits}g}"
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def update_page(page: str, *tables: str) -> None:
    """Print the tables and replace those of the page PAGE.md."""
    text = "\n".join(tables)
    print(text)
    path = PAGES / f"{page}.md"
    if path.exists():
        page_text = TABLES.sub(lambda match: match[1] + "\n" + text + "\n" + match[2], path.read_text("utf-8"))
        path.write_text(page_text, "utf-8")
