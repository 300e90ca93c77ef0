"""Make the training files of the alignment recipes: `python recipes/alignment/weigh.py OUT`, after prepare.py and
`saccade align count --src OUT/pairs.en --tgt OUT/pairs.fr --symmetrise graded -o OUT/pairs.links`.

    train.en train.fr         pairs, with the last 447 of them (the text of the gold pairs) as often as `REPEATS`: they
                              are longer and of another kind than Tatoeba, and few
    train.en-fr train.fr-en   the counted links of either direction
"""

import re
import sys
from pathlib import Path

GOLD = 447
REPEATS = 20


def weighed(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines + lines[-GOLD:] * (REPEATS - 1))


def turned(line: str) -> str:
    return re.sub(r"(\d+)([-p])(\d+)", r"\3\2\1", line)


def main(folder: Path) -> None:
    def lines(name: str) -> list[str]:
        return (folder / name).read_text("utf-8").removesuffix("\n").split("\n")

    links = lines("pairs.links")
    files = {"en": lines("pairs.en"), "fr": lines("pairs.fr"), "en-fr": links, "fr-en": [*map(turned, links)]}
    for ending, rows in files.items():
        (folder / f"train.{ending}").write_bytes(weighed(rows).encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
