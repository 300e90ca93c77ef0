"""The demo: the main job on text that needs no download. Dates of one language become dates of another."""

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
    """Train, test on unseen dates, translate a few, show the attention, say what to type next."""
    folder = Path(run or ("runs/demo" if (from_, to) == ("en", "de") else f"runs/demo-{from_}-{to}"))
    flags = [
        f'data.{split}.{key}="{value}"'
        for split in ("train", "dev", "test")
        for key, value in (("from", from_), ("to", to))
    ]
    train(read_recipe("demo", flags).config, folder, ConsoleReporter())
    loaded = Run(folder)
    screen = console()

    def say(text: str = "") -> None:
        screen.print(Text(text))

    figures = loaded.evaluate()
    say(
        f"\n{figures['exact_match']:.1f} % of {figures['sentences']:,} dates it has never seen are translated exactly\n"
    )
    sources = [source for source, _ in loaded.test_pairs()[:DATES_CONSIDERED]]
    longest = max(sources, key=len)  # a whole date, with its weekday
    shown = [*sources[:DATES_TRANSLATED], longest]
    for source, output in zip(shown, loaded.translate(shown), strict=True):
        say(f"  {source} → {output}")
    maps = loaded.attention(longest)
    say(f"\nwhere it looked (each row a word it wrote, each column a word it read): {maps.source} → {maps.target}\n")
    screen.print(heat_map(maps.words().mean("cross"), width=min(screen.width, 100)))
    page = write_page([loaded.attention(source) for source in reversed(shown)], folder / "attention.html", "Dates")
    say(f"\nThe run is {folder}, every head of every layer is in {page}: open it in a browser. Next:")
    say(f'  echo "{longest}" | {program()} translate {folder}')
    say(f'  {program()} view {folder} "{longest}" -o page.html')
    say(f"  {program()} evaluate {folder}")
    return loaded
