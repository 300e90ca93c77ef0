"""`saccade tag`, `saccade classify` and `saccade evaluate` of labels, as a user calls them."""

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

TINY = """
seed = 1
task = "{task}"

[data]
folder = "{folder}"
train = {{ kind = "{source}", file = "train.{end}" }}
dev = {{ kind = "{source}", file = "dev.{end}" }}
test = {{ kind = "{source}", file = "test.{end}" }}
tokenizer = "words"
longest = 16

[model]
dim = 16
head = "linear"
dropout = {{ residual = 0.0, embedding = 0.0 }}
encoder = {{ depth = 1, embedding = "{embedding}", block.self.heads = 2, block.feed_forward.inner = 32 }}

[train]
updates = 150
batch_tokens = 256
schedule = {{ kind = "linear", rate = 0.02, warmup = 10 }}
log_every = 50
validate_every = 150
"""

Call = Callable[..., Any]


class Trained(NamedTuple):
    """A run, and what its training told."""

    run: Path
    told: str


def series_of(dice: np.random.Generator, user: str, whole: bool) -> dict[str, Any]:
    """Label 1 where the first column is positive."""
    arrays: dict[str, Any] = {}
    for row in range(60 if user == "a" else 6):
        signs = np.repeat(dice.choice([-1, 1], 1 if whole else 3), 8)
        arrays[f"{user}_{row}_x"] = np.stack([signs * dice.uniform(1, 2, len(signs)), dice.normal(size=len(signs))], 1)
        arrays[f"{user}_{row}_y"] = np.where(signs > 0, 1, 2)[0 if whole else slice(None)]
    return arrays


def write(folder: Path, kind: str) -> None:
    """Vowels or consonants; texts with an "a" or without."""
    dice = np.random.default_rng(3)
    for split, user in (("train", "a"), ("dev", "b"), ("test", "c")):
        sentences = [dice.choice([*"aeioxyz"], dice.integers(1, 7)).tolist() for _ in range(200 if user == "a" else 20)]
        if kind == "words":
            text = "".join("".join(f"{w}\t{'V' if w in 'aeio' else 'C'}\n" for w in s) + "\n" for s in sentences)
            (folder / f"{split}.txt").write_text(text, "utf-8")
        elif kind == "texts":
            text = "".join(f"{'with' if 'a' in s else 'without'} {' '.join(s)}\n" for s in sentences)
            (folder / f"{split}.txt").write_text(text, "utf-8")
        else:
            np.savez(folder / f"{split}.npz", **series_of(dice, user, kind == "series"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trained]:
    """The run of words, texts, frames or series, trained when it is first asked for, by a process of its own."""
    found: dict[str, Trained] = {}

    def made(kind: str) -> Trained:
        if kind not in found:
            folder = tmp_path_factory.mktemp(kind)
            write(folder, kind)
            numbers = kind in ("frames", "series")
            source = {"words": "columns", "texts": "labeled"}.get(kind, "series")
            values = {"source": source, "end": "npz" if numbers else "txt", "folder": folder}
            task = "tagging" if kind in ("words", "frames") else "classification"
            recipe = TINY.format(task=task, embedding="series" if numbers else "tokens", **values)
            (folder / "tiny.toml").write_text(recipe, "utf-8")
            command = [sys.executable, "-m", "saccade", "train", "tiny.toml", "--run", "run"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            assert (done.returncode, done.stdout) == (0, ""), done.stderr
            found[kind] = Trained(folder / "run", done.stderr)
        return found[kind]

    return made


Trains = Callable[[str], Trained]


# ── training ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("kind", "command"), [("words", "Tag"), ("texts", "Classify"), ("frames", "Tag")])
def test_training_ends_with_the_command_that_uses_the_run(kind: str, command: str, trained: Trains):
    told = trained(kind).told.splitlines()
    assert told[-1].startswith(f"{command} with: ")
    assert told[-1].endswith(f"saccade {command.lower()} run FILE")
    assert any("accuracy" in line and "macro f1" in line for line in told)
    assert not any("bleu" in line for line in told)


# ── words ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_line_of_words_in_is_a_line_of_labels_out(trained: Trains, call: Call):
    said = call("tag", trained("words").run, stdin="a x e\n\n   \nz\nü a\u00a0x\n".encode())
    lines = said.out.split("\n")
    assert (said.code, lines[:4]) == (0, ["V C V", "", "", "C"])
    assert len(lines[4].split()) == 3  # a space that does not break parts words too
    assert lines[5:] == [""]


def test_words_and_labels_in_columns(trained: Trains, call: Call):
    said = call("tag", trained("words").run, "--columns", stdin=b"a x\n\nz\n")
    assert (said.code, said.out) == (0, "a\tV\nx\tC\n\n\nz\tC\n\n")


def test_words_and_labels_as_json(trained: Trains, call: Call):
    said = call("tag", trained("words").run, "--json", stdin=b"a x\n\n")
    first, second = map(json.loads, said.out.splitlines())
    assert first == {"words": ["a", "x"], "labels": ["V", "C"]}
    assert second == {"words": [], "labels": []}


def test_a_file_is_tagged_into_a_file_and_long_lines_too(trained: Trains, call: Call, tmp_path: Path):
    words = ["a", "x", "e", "z"] * 50  # longer than what training has read
    with gzip.open(tmp_path / "in.gz", "wb") as file:
        file.write(f"{' '.join(words)}\nx\n".encode())
    said = call("tag", trained("words").run, tmp_path / "in.gz", "-o", tmp_path / "out.txt")
    assert (said.code, said.out) == (0, "")
    long, short = (tmp_path / "out.txt").read_text("utf-8").splitlines()
    assert len(long.split()) == len(words)
    assert short == "C"


# ── texts ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_text_in_is_a_label_out(trained: Trains, call: Call):
    said = call("classify", trained("texts").run, stdin=b"x a z\n\nx y\na\n")
    assert (said.code, said.out) == (0, "with\n\nwithout\nwith\n")


def test_labels_with_their_probabilities_as_json(trained: Trains, call: Call):
    said = call("classify", trained("texts").run, "--json", stdin=b"x a z\n\n")
    first, second = map(json.loads, said.out.splitlines())
    assert (first["text"], first["label"]) == ("x a z", "with")
    assert sum(first["probabilities"].values()) == pytest.approx(1)
    assert max(first["probabilities"], key=first["probabilities"].get) == "with"
    assert second == {"text": "", "label": "", "probabilities": {}}


# ── series ────────────────────────────────────────────────────────────────────────────────────────


def steps(*levels: float) -> np.ndarray:
    return np.array([[level, 0.0] for level in levels])


def test_frames_come_out_as_stretches_of_equal_labels(trained: Trains, call: Call, tmp_path: Path):
    series = steps(*[1.5] * 8, *[-1.5] * 8)
    np.savez(tmp_path / "new.npz", u_x=series, u_y=np.zeros(16, int), v_x=series[:1], w_x=series[:0])
    said = call("tag", trained("frames").run, tmp_path / "new.npz")
    assert (said.code, said.out) == (0, "u\t0\t8\t1\nu\t8\t16\t2\nv\t0\t1\t1\n")
    said = call("tag", trained("frames").run, tmp_path / "new.npz", "--json")
    records = [json.loads(line) for line in said.out.splitlines()]
    assert records[0] == {"name": "u", "labels": ["1"] * 8 + ["2"] * 8}
    assert records[1:] == [{"name": "v", "labels": ["1"]}, {"name": "w", "labels": []}]


def test_arrays_of_any_name_will_do_if_none_ends_in_x(trained: Trains, call: Call, tmp_path: Path):
    np.savez(tmp_path / "new.npz", walk=steps(1.5, 1.5), note=np.zeros(3))
    assert call("tag", trained("frames").run, tmp_path / "new.npz").out == "walk\t0\t2\t1\n"


@pytest.mark.parametrize("label", ["", ",9"])
def test_series_may_be_text_with_labels_or_without(label: str, trained: Trains, call: Call, tmp_path: Path):
    text = f"1.5,0.1{label}\n1.7, 0.2{label}\n\n\n-1.5,0.3{label}\n"
    (tmp_path / "new.csv").write_text(text, "utf-8")
    wanted = "series1\t0\t2\t1\nseries2\t0\t1\t2\n"
    run = trained("frames").run
    assert call("tag", run, tmp_path / "new.csv").out == call("tag", run, stdin=text.encode()).out == wanted
    said = call("classify", trained("series").run, tmp_path / "new.csv")
    assert (said.code, said.out) == (0, "series1\t1\nseries2\t2\n")


def test_series_are_classified(trained: Trains, call: Call, tmp_path: Path):
    np.savez(tmp_path / "new.npz", u_x=steps(*[1.5] * 40), v_x=steps(-1.5), w_x=steps(1)[:0])
    run = trained("series").run
    assert call("classify", run, tmp_path / "new.npz").out == "u\t1\nv\t2\nw\t\n"
    records = [json.loads(line) for line in call("classify", run, tmp_path / "new.npz", "--json").out.splitlines()]
    assert [(record["name"], record["label"]) for record in records] == [("u", "1"), ("v", "2"), ("w", "")]
    assert sum(records[0]["probabilities"].values()) == pytest.approx(1)


BAD_ARRAYS: dict[str, tuple[Any, str]] = {
    "not a number": (np.array([[1, 2], [3, np.nan]]), "new.npz:u: row 1, column 1 is NaN"),
    "another width": (np.zeros((2, 3)), "new.npz:u: has the shape [2, 3], but the run reads [frames, 2]"),
    "one axis": (np.zeros(4), "new.npz:u: has the shape [4], but the run reads [frames, 2]"),
    "text": (np.array([["a", "b"]]), "new.npz:u: holds <U1, not real numbers"),
    "objects": (np.array([[1, None]], dtype=object), "u_x.npy holds Python objects"),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_an_array_is_refused_with_its_place_when_it_has(case: str, trained: Trains, call: Call, tmp_path: Path):
    array, words = BAD_ARRAYS[case]
    np.savez(tmp_path / "new.npz", u_x=array)
    for command, kind in (("tag", "frames"), ("classify", "series")):
        said = call(command, trained(kind).run, tmp_path / "new.npz")
        assert (said.code, said.out) == (1, "")
        assert words in said.err
        assert "Traceback" not in said.err


BAD_LINES = {
    "1,2\n3\n": "new.txt:2: has 1 numbers, but the run reads 2 a frame",
    "1,2\n3,4,5,6\n": "new.txt:2: has 4 numbers, but the run reads 2 a frame",
    "1,2\n\n3,nan\n": "new.txt:3: column 1 is NaN",
    "1,2\n3,inf\n": "new.txt:2: column 1 is infinite",
    "1,2\n3,x\n": "new.txt:2: column 1 is 'x', which is not a number",
}


@pytest.mark.parametrize("text", BAD_LINES)
def test_a_line_is_refused_with_its_number(text: str, trained: Trains, call: Call, tmp_path: Path):
    (tmp_path / "new.txt").write_text(text, "utf-8")
    said = call("tag", trained("frames").run, tmp_path / "new.txt")
    assert said.code == 1
    assert BAD_LINES[text] in said.err


def test_what_is_no_archive_is_refused(trained: Trains, call: Call, tmp_path: Path):
    (tmp_path / "new.npz").write_bytes(b"PK no")
    said = call("tag", trained("frames").run, tmp_path / "new.npz")
    assert said.code == 1
    assert "is no npz file, or damaged" in said.err
    np.savez(tmp_path / "new.npz", note=np.zeros(3))
    said = call("tag", trained("frames").run, tmp_path / "new.npz")
    assert "holds no array NAME_x and none with two axes" in said.err


# ── scores ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["words", "texts", "frames", "series"])
def test_a_run_is_scored_on_its_test_data(kind: str, trained: Trains, call: Call):
    run = trained(kind).run
    figures = json.loads(call("evaluate", run, "--json").out)
    assert figures["accuracy"] > 90
    assert figures["count"] == sum(map(sum, figures["confusion"]))
    text = call("evaluate", run).out.splitlines()
    assert text[0].split()[:2] == ["accuracy", f"{figures['accuracy']:.2f}"]
    assert text[1].split()[2] == f"{figures['macro_f1']:.2f}"
    table = {line.split()[0]: line.split()[1:] for line in text if len(line.split()) == 5}
    for label, facts in figures["per_label"].items():
        assert table[label] == [*(f"{facts[name]:.2f}" for name in ("precision", "recall", "f1")), f"{facts['count']}"]
    assert any(line.startswith("true \\ found") for line in text)


def test_accuracy_over_some_labels_is_the_recall_of_these(trained: Trains, call: Call):
    run = trained("words").run
    every = json.loads(call("evaluate", run, "--json").out)
    vowels = json.loads(call("evaluate", run, "--json", "--labels", "V").out)
    assert vowels["accuracy"] == pytest.approx(every["per_label"]["V"]["recall"])
    assert vowels["count"] == every["per_label"]["V"]["count"] < every["count"]
    assert json.loads(call("evaluate", run, "--json", "--labels", "C,V").out)["accuracy"] == every["accuracy"]
    said = call("evaluate", run, "--labels", "V,K")
    assert (said.code, said.out) == (1, "")
    assert "there is no label 'K' (known: C, V)" in said.err


def test_other_test_data_of_the_same_name_is_refused(trained: Trains, call: Call, tmp_path: Path):
    run = trained("texts").run
    write(tmp_path, "texts")
    test = run.parent / "test.txt"
    before = test.read_bytes()
    test.write_bytes(b"with a\n")
    try:
        said = call("evaluate", run)
    finally:
        test.write_bytes(before)
    assert said.code == 1
    assert "data.test.file: is not the text of this run" in said.err


# ── usage ─────────────────────────────────────────────────────────────────────────────────────────


def test_another_task_is_answered_with_the_right_command(trained: Trains, call: Call, run: Path, tmp_path: Path):
    out = tmp_path / "out.txt"
    out.write_text("precious", "utf-8")
    for command, given, right in (
        ("translate", trained("words").run, "tag"),
        ("classify", trained("words").run, "tag"),
        ("tag", trained("texts").run, "classify"),
        ("tag", run, "translate"),
        ("classify", run, "translate"),
    ):
        said = call(command, given, "-o", out, stdin=b"a\n")
        assert (said.code, said.out) == (1, "")
        assert f"use `saccade {right}`" in said.err
        assert out.read_text("utf-8") == "precious"
    said = call("view", trained("words").run, "a")
    assert said.code == 1
    assert "attention can be shown of runs that translate" in said.err


def test_a_damaged_run_does_not_empty_the_output(trained: Trains, call: Call, tmp_path: Path):
    import shutil

    shutil.copytree(trained("words").run, tmp_path / "run")
    labels = tmp_path / "run" / "tokenizer" / "labels.json"
    labels.write_bytes(labels.read_bytes().replace(b"C", b"D"))
    (tmp_path / "out.txt").write_text("precious", "utf-8")
    said = call("tag", tmp_path / "run", "-o", tmp_path / "out.txt", stdin=b"a\n")
    assert said.code == 1
    assert "labels.json: checksum mismatch" in said.err
    assert (tmp_path / "out.txt").read_text("utf-8") == "precious"


@pytest.mark.parametrize(
    "words",
    [
        ["tag", "RUN", "--columns", "--json"],
        ["tag", "RUN", "nowhere.txt"],
        ["classify", "RUN", "nowhere.txt"],
        ["tag", "nowhere"],
        ["classify", "nowhere"],
        ["evaluate", "--hyp", "FILE", "--ref", "FILE", "--labels", "a"],
    ],
)
def test_usage_is_refused_before_torch_is_imported(words: list[str], trained: Trains, tmp_path: Path):
    (tmp_path / "file").write_text("a\n", "utf-8")
    places = {"RUN": str(trained("words").run), "FILE": str(tmp_path / "file")}
    command = [places.get(word, word) for word in words]
    code = (
        "import sys; from saccade.cli import main; code = main(sys.argv[1:]); "
        "sys.exit(99 if 'torch' in sys.modules else code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr


def test_flags_of_translators_and_of_labels_are_kept_apart(trained: Trains, call: Call, run: Path, tmp_path: Path):
    (tmp_path / "file").write_text("a\n", "utf-8")
    words, file = trained("words").run, tmp_path / "file"
    for command in (
        ("evaluate", words, "--src", file, "--ref", file),
        ("evaluate", words, "--beam", 3),
        ("evaluate", run, "--labels", "a"),
        ("tag", trained("frames").run, "--columns"),
        ("tag", words, file, "-o", file),
    ):
        said = call(*command)
        assert (said.code, said.out) == (2, ""), command
