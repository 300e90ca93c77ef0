"""The chain of Multi30k on a few lines: two models speak, one hears them, and all is scored."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "recipes" / "multi30k" / "chain.py"
SMALL = ["train.updates=3", "train.validate_every=3", "data.tokenizer.size=60", "model.dim=16"]
WHO = (("Man", "Mann"), ("Dog", "Hund"), ("Child", "Kind"))
DOES = (("Runs", "läuft"), ("Sleeps", "schläft"), ("Sings", "singt"), ("Sees", "sieht"))
LINES = [(f"a {who} {does}", f"ein {wer} {tut}") for who, wer in WHO for does, tut in DOES]

pytestmark = pytest.mark.slow


def run(*words: object) -> subprocess.CompletedProcess[str]:
    flags = [word for change in SMALL for word in ("--set", change)]
    command = [sys.executable, str(SCRIPT), *map(str, words), *flags]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=300, check=False)


def write(folder: Path, form: str) -> None:
    for split in ("train", "val", "test_2016_flickr"):
        for side, language in enumerate(("en", "de")):
            with gzip.open(folder / f"{split}{form}.{language}.gz", "wt", encoding="utf-8") as file:
                file.writelines(f"{pair[side] if not form else pair[side].lower()}\n" for pair in LINES)


@pytest.mark.parametrize(("form", "flags"), [(".lc.norm.tok", []), ("", ["--cased"])], ids=["lower", "cased"])
def test_two_models_speak_and_one_hears_them(tmp_path: Path, form: str, flags: list[str]) -> None:
    write(tmp_path, form)
    runs = tmp_path / "runs"
    found = run(tmp_path, runs, "--seed", 3, *flags)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "bleu" in found.stdout.lower()
    spoken = [(runs / "text" / f"train.{side}").read_text("utf-8").split("\n")[:-1] for side in ("src", "tgt")]
    people = [*zip(*spoken, strict=True)][: len(LINES)]
    assert people == [(a if flags else a.lower(), b if flags else b.lower()) for a, b in LINES]
    assert len(spoken[0]) > len(LINES), "nobody has spoken"
    for name, source in (("forward", f"train{form}.en.gz"), ("backward", f"train{form}.de.gz")):
        config = (runs / name / "config.toml").read_text("utf-8")
        assert source in config
        assert "seed = 3" in config


def test_the_same_command_goes_on_and_capitals_stay(tmp_path: Path) -> None:
    write(tmp_path, "")
    (tmp_path / "runs" / "text").mkdir(parents=True)
    for side, lines in zip(("src", "tgt"), zip(*LINES, strict=True), strict=True):
        (tmp_path / "runs" / "text" / f"train.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = run(tmp_path, tmp_path / "runs", "--cased")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "they speak" not in found.stdout, "what is written is written"
    assert "train.en.gz" in (tmp_path / "runs" / "forward" / "config.toml").read_text("utf-8")


def test_what_fails_is_named(tmp_path: Path) -> None:
    write(tmp_path, "")
    (tmp_path / "train.de.gz").unlink()
    found = run(tmp_path, tmp_path / "runs", "--cased")
    assert found.returncode == 1
    assert "forward.log" in found.stderr
    assert "train.de.gz" in (tmp_path / "runs" / "forward.log").read_text("utf-8")
