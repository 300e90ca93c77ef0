"""Make the Tatoeba files of the fine-tuning recipes: `python recipes/fine-tuning/prepare.py DATA OUT`.

DATA contains tatoeba/deu-eng.zip (English-German sentence pairs of tatoeba.org, packaged by manythings.org). OUT gets
train.tsv and dev.tsv with the columns English and German. The development text has 1,000 pairs, whose English sentences
do not occur in train.tsv in any capitalization. The same archive always gives the same files.
"""

import hashlib
import sys
import zipfile
from pathlib import Path

DEV_PAIRS = 1000

Sentences = tuple[str, str]


def pairs(archive: Path) -> list[Sentences]:
    """The distinct pairs of the archive, in its order."""
    text = zipfile.ZipFile(archive).read("deu.txt").decode()
    columns = (line.split("\t") for line in text.split("\n") if line)
    return list(dict.fromkeys((english, german) for english, german, *_ in columns))


def split(rows: list[Sentences]) -> tuple[list[Sentences], list[Sentences]]:
    """Training and development pairs. English sentences are drawn in the order of their hashes; the first translation
    of each goes to the development text, and its other translations go nowhere."""
    first = {english.lower(): (english, german) for english, german in reversed(rows)}
    drawn = sorted(first, key=lambda english: hashlib.sha256(english.encode()).digest())[:DEV_PAIRS]
    held_out = set(drawn)
    return [row for row in rows if row[0].lower() not in held_out], [first[english] for english in drawn]


def write(path: Path, rows: list[Sentences]) -> None:
    path.write_bytes("".join(f"{english}\t{german}\n" for english, german in rows).encode())
    print(f"{path}: {len(rows):,} pairs")


def main(data: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    train, dev = split(pairs(data / "tatoeba" / "deu-eng.zip"))
    write(out / "train.tsv", train)
    write(out / "dev.tsv", dev)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
