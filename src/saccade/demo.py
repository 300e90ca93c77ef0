"""`saccade demo`: train a small translation model on generated dates, without a download, and show its attention."""

from pathlib import Path

from rich.text import Text

from saccade.api import Run
from saccade.console import console, program
from saccade.recipe import read_recipe
from saccade.training.loop import train
from saccade.training.progress import ConsoleReporter
from saccade.view.page import write_page
from saccade.view.terminal import heat_map

DATES_TRANSLATED = 3
DATES_CONSIDERED = 200


def demo(from_: str, to: str, run: str) -> Run:
    """Train, evaluate on held-out dates, translate a few of them, show the attention, and suggest the next commands."""
    folder = Path(run or ("runs/demo" if (from_, to) == ("en", "de") else f"runs/demo-{from_}-{to}"))
    flags = [
        f'data.{split}.{key}="{value}"'
        for split in ("train", "dev", "test")
        for key, value in (("from", from_), ("to", to))
    ]
    recipe = read_recipe("demo", flags).config
    train(recipe, folder, ConsoleReporter())
    loaded = Run(folder, device=recipe.train.device)
    screen = console()

    def say(text: str = "") -> None:
        screen.print(Text(text))

    scores = loaded.evaluate()
    say(f"\nexact match on {scores['sentences']:,} held-out dates: {scores['exact_match']:.1f} %\n")
    sources = [source for source, _ in loaded.test_pairs()[:DATES_CONSIDERED]]
    longest = max(sources, key=len)  # a full date, with its weekday
    shown = [*sources[:DATES_TRANSLATED], longest]
    for source, output in zip(shown, loaded.translate(shown), strict=True):
        say(f"  {source} → {output}")
    maps = loaded.attention(longest)
    say(f"\ncross-attention (rows: target words, columns: source words): {maps.source} → {maps.target}\n")
    screen.print(heat_map(maps.words().mean("cross"), width=min(screen.width, 100)))
    page = write_page([loaded.attention(source) for source in reversed(shown)], folder / "attention.html", "Dates")
    say(f"\nThe run is {folder}. Open {page} in a browser to see every head of every layer. Next:")
    say(f'  echo "{longest}" | {program()} translate {folder}')
    say(f'  {program()} view {folder} "{longest}" -o page.html')
    say(f"  {program()} evaluate {folder}")
    return loaded
