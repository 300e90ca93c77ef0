"""Make the text files of the alignment recipes: `python recipes/alignment/prepare.py DATA OUT`.

DATA contains tatoeba/fra-eng.zip (English-French sentence pairs of tatoeba.org, packaged by manythings.org) and
align/gold/enfr.src-tgt (the text of 447 Hansard pairs with gold links: Och & Ney 2000; Mihalcea & Pedersen 2003). The
files in OUT are:

    pairs.en pairs.fr   Tatoeba, followed by the text of the gold pairs
    dev.en dev.fr       Tatoeba, with English sentences that are not in pairs.en
    gold.en gold.fr     the text of the gold pairs

All text is lowercased and tokenized like the gold text, in which contractions are expanded ("du" is "de le").
"""

import hashlib
import re
import sys
import zipfile
from pathlib import Path

DEV_INTERVAL = 100  # one in so many English sentences goes to the development data

QUOTES = str.maketrans({"’": "'", "‘": "'", "´": "'", "“": '"', "”": '"', "\u202f": " ", "\u00a0": " ", "\u2009": " "})
ENGLISH = (
    (r"\bcan't\b", "can not"),
    (r"\bwon't\b", "will not"),
    (r"\blet's\b", "let us"),
    (r"n't\b", " not"),
    (r"'m\b", " am"),
    (r"'re\b", " are"),
    (r"'ve\b", " have"),
    (r"'ll\b", " will"),
    (r"\b(it|that|he|she|what|there|here|where|who|how)'s\b", r"\1 is"),
    (r"'(s|d)\b", r" '\1"),
)
FRENCH = (
    (r"\baujourd'hui\b", "aujourd' hui"),
    (r"\b(qu|jusqu|lorsqu|puisqu|quoiqu)'", r"\1e "),
    (r"\b([cdjlmnst])'", r"\1e "),
    (r"\bdu\b", "de le"),
    (r"\bdes\b", "de les"),
    (r"\bau\b", "à le"),
    (r"\baux\b", "à les"),
    (r"-t-(?=il|elle|on)", " "),
    (r"-(?=il|elle|on|je|tu|nous|vous|ils|elles|ce|moi|toi|le|la|les|lui|leur|y|en)\b", " "),
)
WORD = re.compile(r"\d+(?:[.,]\d+)*|(?:mr|mrs|ms|dr|st|hon|no)\.|aujourd'|'[sd]\b|[^\W_]+|\S")


def words(text: str, rules: tuple[tuple[str, str], ...]) -> str:
    """The words of a text, separated by spaces."""
    text = text.translate(QUOTES).lower()
    for pattern, replacement in rules:
        text = re.sub(pattern, replacement, text)
    return " ".join(WORD.findall(text))


def is_dev(english: str) -> bool:
    """Whether a pair is development data. All translations of an English sentence go to the same split."""
    return int.from_bytes(hashlib.sha256(english.lower().encode()).digest()[:4]) % DEV_INTERVAL == 0


def tatoeba(path: Path) -> dict[str, list[tuple[str, str]]]:
    splits: dict[str, list[tuple[str, str]]] = {"train": [], "dev": []}
    for line in zipfile.ZipFile(path).read("fra.txt").decode().split("\n"):
        if line:
            english, french = line.split("\t")[:2]
            splits["dev" if is_dev(english) else "train"].append((words(english, ENGLISH), words(french, FRENCH)))
    return splits


def gold(path: Path) -> list[tuple[str, str]]:
    lines = path.read_text("utf-8").lower().removesuffix("\n").split("\n")
    return [(" ".join(s.split()), " ".join(t.split())) for s, _, t in (line.partition("|||") for line in lines)]


def write(folder: Path, name: str, pairs: list[tuple[str, str]]) -> None:
    for side, language in enumerate(("en", "fr")):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (folder / f"{name}.{language}").write_bytes(text.encode())
    print(f"{name}: {len(pairs):,} pairs")


def main(data: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    splits = tatoeba(data / "tatoeba" / "fra-eng.zip")
    aligned = gold(data / "align" / "gold" / "enfr.src-tgt")
    write(out, "pairs", splits["train"] + aligned)
    write(out, "dev", splits["dev"])
    write(out, "gold", aligned)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
