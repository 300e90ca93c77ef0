"""Make the training files of the alignment recipes: `python recipes/alignment/make_training_files.py OUT`, after
prepare.py and `saccade align statistical --src OUT/pairs.en --tgt OUT/pairs.fr --symmetrize graded -o OUT/pairs.links`.

    train.en train.fr         pairs.en and pairs.fr, with the last 447 pairs (the text of the gold pairs) REPEATS times:
                              they are few, longer than Tatoeba and from another domain
    train.en-fr train.fr-en   the links of each direction
"""

import re
import sys
from pathlib import Path

GOLD_PAIRS = 447
REPEATS = 20


def with_repeated_gold(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines + lines[-GOLD_PAIRS:] * (REPEATS - 1))


def swapped(line: str) -> str:
    """The links with source and target swapped."""
    return re.sub(r"(\d+)([-p])(\d+)", r"\3\2\1", line)


def main(folder: Path) -> None:
    def lines(name: str) -> list[str]:
        return (folder / name).read_text("utf-8").removesuffix("\n").split("\n")

    links = lines("pairs.links")
    files = {"en": lines("pairs.en"), "fr": lines("pairs.fr"), "en-fr": links, "fr-en": [*map(swapped, links)]}
    for ending, rows in files.items():
        (folder / f"train.{ending}").write_bytes(with_repeated_gold(rows).encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
