"""What the scripts of this folder share: copying strings, how pictures look, and how figures get onto their page."""

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

# Readable for the colour-blind, and on white, which the pictures bring along for dark pages.
BLUE, RED, GREEN, ORANGE, PURPLE, GREY = "#0b62a4", "#c8402f", "#1b8a5a", "#d98200", "#7b4ab0", "#6b6b6b"
TABLE = re.compile(r"(<!-- figures -->\n).*?(<!-- end of figures -->)", re.DOTALL)


def copying(
    text: dict[str, Any], memory: Any, dim: int, seed: int, dev_rows: int, train: dict[str, Any]
) -> dict[str, Any]:
    """A recipe: a GRU encoder-decoder whose decoder is told of the source by `memory` learns to copy strings."""
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
            "decoder": {"kind": "recurrent", "cell": "gru", "cross": memory},
        },
        "train": {
            "schedule": {"kind": "linear", "rate": 0.004, "warmup": 50},
            "validate_every": train["updates"],
            **train,
        },
        "decode": {"search": "greedy"},
    }


def panels(columns: int, widths: Sequence[float] | None = None, height: float = 3.2) -> "tuple[Figure, list[Axes]]":
    """A figure with some axes side by side, drawn without a screen."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 8.5, "axes.titlesize": 9.5, "axes.titlelocation": "left", "lines.linewidth": 1.6})
    figure, axes = plt.subplots(
        1, columns, figsize=(9, height), squeeze=False, layout="constrained", gridspec_kw={"width_ratios": widths}
    )
    for one in axes[0]:
        one.grid(True, color="#dddddd", linewidth=0.5)
        one.set_axisbelow(True)
        one.spines[["top", "right"]].set_visible(False)
    return figure, list(axes[0])


def label(axes: "Axes", text: str, x: float, y: float, colour: str, right: float = 4, up: float = 0) -> None:
    """A word beside a line, in the line's colour, in place of a legend; moved by some points."""
    axes.annotate(text, (x, y), (right, up), textcoords="offset points", va="center", color=colour)


def save(figure: "Figure", name: str) -> None:
    """docs/images/claims-NAME.png in 256 colours: small, and with nothing in it that changes from day to day."""
    from PIL import Image

    drawn, path = io.BytesIO(), IMAGES / f"claims-{name}.png"
    figure.savefig(drawn, dpi=120, facecolor="white")
    Image.open(drawn).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        path, optimize=True
    )
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def number(value: float, digits: int = 2) -> str:
    """0.38, 1,046 and 2.8e-16: so many digits as a reader needs."""
    if 1e-3 <= abs(value) < 1e4:
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.{digits}g}"
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def quote(page: str, *tables: str) -> None:
    """Print the tables, and put them where the page has its figures: nobody copies numbers by hand."""
    text = "\n".join(tables)
    print(text)
    path = PAGES / f"{page}.md"
    if path.exists():
        path.write_text(
            TABLE.sub(lambda found: found[1] + "\n" + text + "\n" + found[2], path.read_text("utf-8")), "utf-8"
        )
