"""`saccade tag`, `saccade classify` and `saccade evaluate` on labeling runs."""

import gzip
import io
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from saccade.cli import main

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
    """A run, and the stderr of its training."""

    run: Path
    stderr: str


def series_of(random: np.random.Generator, user: str, whole: bool) -> dict[str, Any]:
    """Series labeled 1 where the first column is positive and 2 elsewhere: one label for each frame, or one for the
    series if `whole`."""
    arrays: dict[str, Any] = {}
    for row in range(60 if user == "a" else 6):
        signs = np.repeat(random.choice([-1, 1], 1 if whole else 3), 8)
        arrays[f"{user}_{row}_x"] = np.stack(
            [signs * random.uniform(1, 2, len(signs)), random.normal(size=len(signs))], 1
        )
        arrays[f"{user}_{row}_y"] = np.where(signs > 0, 1, 2)[0 if whole else slice(None)]
    return arrays


def write(folder: Path, kind: str) -> None:
    """Write the three splits of data of a kind: "words" labeled vowel or consonant, "texts" labeled by whether they
    contain an "a", "frames" (series with a label per frame) or "series" (series with one label)."""
    random = np.random.default_rng(3)
    for split, user in (("train", "a"), ("dev", "b"), ("test", "c")):
        sentences = [
            random.choice([*"aeioxyz"], random.integers(1, 7)).tolist() for _ in range(200 if user == "a" else 20)
        ]
        if kind == "words":
            text = "".join("".join(f"{w}\t{'V' if w in 'aeio' else 'C'}\n" for w in s) + "\n" for s in sentences)
            (folder / f"{split}.txt").write_text(text, "utf-8")
        elif kind == "texts":
            text = "".join(f"{'with' if 'a' in s else 'without'} {' '.join(s)}\n" for s in sentences)
            (folder / f"{split}.txt").write_text(text, "utf-8")
        else:
            np.savez(folder / f"{split}.npz", **series_of(random, user, kind == "series"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trained]:
    """A function from a kind of data (words, texts, frames or series) to its run and the stderr of its training. Each
    run is trained at its first use, in this process."""
    runs: dict[str, Trained] = {}

    def train_once(kind: str) -> Trained:
        if kind not in runs:
            folder = tmp_path_factory.mktemp(kind)
            write(folder, kind)
            numeric = kind in ("frames", "series")
            source = {"words": "columns", "texts": "labeled"}.get(kind, "series")
            values = {"source": source, "end": "npz" if numeric else "txt", "folder": folder}
            task = "tagging" if kind in ("words", "frames") else "classification"
            recipe = TINY.format(task=task, embedding="series" if numeric else "tokens", **values)
            (folder / "tiny.toml").write_text(recipe, "utf-8")
            out, err = io.StringIO(), io.StringIO()
            with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
                patch.chdir(folder)
                command = ["train", "tiny.toml", "--run", "run"]
                patch.setattr(sys, "argv", ["saccade", *command])
                code = main(command)
            assert (code, out.getvalue()) == (0, ""), err.getvalue()
            runs[kind] = Trained(folder / "run", err.getvalue())
        return runs[kind]

    return train_once


TrainedByKind = Callable[[str], Trained]


# ── training ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("kind", "command"), [("words", "Tag"), ("texts", "Classify"), ("frames", "Tag")])
def test_training_prints_the_command_that_uses_the_run(kind: str, command: str, trained: TrainedByKind):
    lines = trained(kind).stderr.splitlines()
    assert lines[-1].startswith(f"{command} with: ")
    assert lines[-1].endswith(f"saccade {command.lower()} run FILE")
    assert any("accuracy" in line and "macro f1" in line for line in lines)
    assert not any("bleu" in line for line in lines)


# ── words ─────────────────────────────────────────────────────────────────────────────────────────


def test_tag_writes_one_line_of_labels_per_line_of_words(trained: TrainedByKind, call: Call):
    result = call("tag", trained("words").run, stdin="a x e\n\n   \nz\nü a\u00a0x\n".encode())
    lines = result.out.split("\n")
    assert (result.code, lines[:4]) == (0, ["V C V", "", "", "C"])
    assert len(lines[4].split()) == 3  # a no-break space separates words too
    assert lines[5:] == [""]


def test_tag_writes_columns(trained: TrainedByKind, call: Call):
    result = call("tag", trained("words").run, "--columns", stdin=b"a x\n\nz\n")
    assert (result.code, result.out) == (0, "a\tV\nx\tC\n\n\nz\tC\n\n")


def test_tag_writes_json(trained: TrainedByKind, call: Call):
    result = call("tag", trained("words").run, "--json", stdin=b"a x\n\n")
    first, second = map(json.loads, result.out.splitlines())
    assert first == {"words": ["a", "x"], "labels": ["V", "C"]}
    assert second == {"words": [], "labels": []}


def test_tag_reads_gzip_writes_a_file_and_labels_lines_longer_than_the_training_data(
    trained: TrainedByKind, call: Call, tmp_path: Path
):
    words = ["a", "x", "e", "z"] * 50  # longer than any sentence in training
    with gzip.open(tmp_path / "in.gz", "wb") as file:
        file.write(f"{' '.join(words)}\nx\n".encode())
    result = call("tag", trained("words").run, tmp_path / "in.gz", "-o", tmp_path / "out.txt")
    assert (result.code, result.out) == (0, "")
    long, short = (tmp_path / "out.txt").read_text("utf-8").splitlines()
    assert len(long.split()) == len(words)
    assert short == "C"


def test_predict_prints_the_output_of_a_run_of_any_task(trained: TrainedByKind, call: Call, run: Path, tmp_path: Path):
    for kind, command in (("words", "tag"), ("texts", "classify")):
        lines = b"a x e\n\nz\n"
        assert call("predict", trained(kind).run, stdin=lines) == call(command, trained(kind).run, stdin=lines)
    expected = call("translate", run, "--engine", "torch", stdin=b"b a\n")
    assert call("predict", run, stdin=b"b a\n").out == expected.out != ""
    np.savez(tmp_path / "new.npz", u_x=steps(1.5, 1.5, -1.5), v_x=steps(-1.5))
    assert call("predict", trained("frames").run, tmp_path / "new.npz").out.splitlines()[1] == "v\t2"
    assert call("predict", trained("series").run, tmp_path / "new.npz").out.splitlines()[1] == "v\t2"


# ── texts ─────────────────────────────────────────────────────────────────────────────────────────


def test_classify_writes_one_label_per_line(trained: TrainedByKind, call: Call):
    result = call("classify", trained("texts").run, stdin=b"x a z\n\nx y\na\n")
    assert (result.code, result.out) == (0, "with\n\nwithout\nwith\n")


def test_classify_writes_probabilities_as_json(trained: TrainedByKind, call: Call):
    result = call("classify", trained("texts").run, "--json", stdin=b"x a z\n\n")
    first, second = map(json.loads, result.out.splitlines())
    assert (first["text"], first["label"]) == ("x a z", "with")
    assert sum(first["probabilities"].values()) == pytest.approx(1)
    assert max(first["probabilities"], key=first["probabilities"].get) == "with"
    assert second == {"text": "", "label": "", "probabilities": {}}


# ── series ────────────────────────────────────────────────────────────────────────────────────────


def steps(*levels: float) -> np.ndarray:
    return np.array([[level, 0.0] for level in levels])


def test_tag_writes_segments_of_equal_labels_for_series(trained: TrainedByKind, call: Call, tmp_path: Path):
    series = steps(*[1.5] * 8, *[-1.5] * 8)
    np.savez(tmp_path / "new.npz", u_x=series, u_y=np.zeros(16, int), v_x=series[:1], w_x=series[:0])
    result = call("tag", trained("frames").run, tmp_path / "new.npz")
    assert (result.code, result.out) == (0, "u\t0\t8\t1\nu\t8\t16\t2\nv\t0\t1\t1\n")
    result = call("tag", trained("frames").run, tmp_path / "new.npz", "--json")
    records = [json.loads(line) for line in result.out.splitlines()]
    assert records[0] == {"name": "u", "labels": ["1"] * 8 + ["2"] * 8}
    assert records[1:] == [{"name": "v", "labels": ["1"]}, {"name": "w", "labels": []}]


def test_arrays_with_two_axes_are_used_if_no_name_ends_in_x(trained: TrainedByKind, call: Call, tmp_path: Path):
    np.savez(tmp_path / "new.npz", walk=steps(1.5, 1.5), note=np.zeros(3))
    assert call("tag", trained("frames").run, tmp_path / "new.npz").out == "walk\t0\t2\t1\n"


@pytest.mark.parametrize("label", ["", ",9"])
def test_series_may_be_text_with_or_without_labels(label: str, trained: TrainedByKind, call: Call, tmp_path: Path):
    text = f"1.5,0.1{label}\n1.7, 0.2{label}\n\n\n-1.5,0.3{label}\n"
    (tmp_path / "new.csv").write_text(text, "utf-8")
    expected = "series1\t0\t2\t1\nseries2\t0\t1\t2\n"
    run = trained("frames").run
    assert call("tag", run, tmp_path / "new.csv").out == call("tag", run, stdin=text.encode()).out == expected
    result = call("classify", trained("series").run, tmp_path / "new.csv")
    assert (result.code, result.out) == (0, "series1\t1\nseries2\t2\n")


def test_classify_reads_series(trained: TrainedByKind, call: Call, tmp_path: Path):
    np.savez(tmp_path / "new.npz", u_x=steps(*[1.5] * 40), v_x=steps(-1.5), w_x=steps(1)[:0])
    run = trained("series").run
    assert call("classify", run, tmp_path / "new.npz").out == "u\t1\nv\t2\nw\t\n"
    records = [json.loads(line) for line in call("classify", run, tmp_path / "new.npz", "--json").out.splitlines()]
    assert [(record["name"], record["label"]) for record in records] == [("u", "1"), ("v", "2"), ("w", "")]
    assert sum(records[0]["probabilities"].values()) == pytest.approx(1)


BAD_ARRAYS: dict[str, tuple[Any, str]] = {
    "not a number": (np.array([[1, 2], [3, np.nan]]), "new.npz:u: row 1, column 1 is NaN"),
    "another width": (np.zeros((2, 3)), "new.npz:u: has shape [2, 3], but the run needs [frames, 2]"),
    "one axis": (np.zeros(4), "new.npz:u: has shape [4], but the run needs [frames, 2]"),
    "text": (np.array([["a", "b"]]), "new.npz:u: has data type <U1, not real numbers"),
    "objects": (np.array([[1, None]], dtype=object), "u_x.npy contains Python objects"),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_an_invalid_array_is_rejected_with_its_location(case: str, trained: TrainedByKind, call: Call, tmp_path: Path):
    array, message = BAD_ARRAYS[case]
    np.savez(tmp_path / "new.npz", u_x=array)
    for command, kind in (("tag", "frames"), ("classify", "series")):
        result = call(command, trained(kind).run, tmp_path / "new.npz")
        assert (result.code, result.out) == (1, "")
        assert message in result.err
        assert "Traceback" not in result.err


BAD_LINES = {
    "1,2\n3\n": "new.txt:2: has 1 numbers, but the run needs 2 per frame",
    "1,2\n3,4,5,6\n": "new.txt:2: has 4 numbers, but the run needs 2 per frame",
    "1,2\n\n3,nan\n": "new.txt:3: column 1 is NaN",
    "1,2\n3,inf\n": "new.txt:2: column 1 is infinite",
    "1,2\n3,x\n": "new.txt:2: column 1 is 'x', which is not a number",
}


@pytest.mark.parametrize("text", BAD_LINES)
def test_an_invalid_line_is_rejected_with_its_number(text: str, trained: TrainedByKind, call: Call, tmp_path: Path):
    (tmp_path / "new.txt").write_text(text, "utf-8")
    result = call("tag", trained("frames").run, tmp_path / "new.txt")
    assert result.code == 1
    assert BAD_LINES[text] in result.err


def test_an_npz_file_that_is_damaged_or_has_no_series_is_rejected(trained: TrainedByKind, call: Call, tmp_path: Path):
    (tmp_path / "new.npz").write_bytes(b"PK no")
    result = call("tag", trained("frames").run, tmp_path / "new.npz")
    assert result.code == 1
    assert "is not an .npz file, or is damaged" in result.err
    np.savez(tmp_path / "new.npz", note=np.zeros(3))
    result = call("tag", trained("frames").run, tmp_path / "new.npz")
    assert "has no array NAME_x and none with two axes" in result.err


# ── scores ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["words", "texts", "frames", "series"])
def test_evaluate_scores_a_run_on_its_test_data(kind: str, trained: TrainedByKind, call: Call):
    run = trained(kind).run
    scores = json.loads(call("evaluate", run, "--json").out)
    assert scores["accuracy"] > 90
    assert scores["count"] == sum(map(sum, scores["confusion"]))
    text = call("evaluate", run).out.splitlines()
    assert text[0].split()[:2] == ["accuracy", f"{scores['accuracy']:.2f}"]
    assert text[1].split()[2] == f"{scores['macro_f1']:.2f}"
    table = {line.split()[0]: line.split()[1:] for line in text if len(line.split()) == 5}
    for label, label_scores in scores["per_label"].items():
        assert table[label] == [
            *(f"{label_scores[name]:.2f}" for name in ("precision", "recall", "f1")),
            f"{label_scores['count']}",
        ]
    assert any(line.startswith("true \\ predicted") for line in text)


def test_accuracy_over_a_label_is_its_recall(trained: TrainedByKind, call: Call):
    run = trained("words").run
    every = json.loads(call("evaluate", run, "--json").out)
    vowels = json.loads(call("evaluate", run, "--json", "--labels", "V").out)
    assert vowels["accuracy"] == pytest.approx(every["per_label"]["V"]["recall"])
    assert vowels["count"] == every["per_label"]["V"]["count"] < every["count"]
    assert json.loads(call("evaluate", run, "--json", "--labels", "C,V").out)["accuracy"] == every["accuracy"]
    result = call("evaluate", run, "--labels", "V,K")
    assert (result.code, result.out) == (1, "")
    assert "there is no label 'K' (known: C, V)" in result.err


def test_changed_test_data_is_rejected(trained: TrainedByKind, call: Call):
    run = trained("texts").run
    test = run.parent / "test.txt"
    before = test.read_bytes()
    test.write_bytes(b"with a\n")
    try:
        result = call("evaluate", run)
    finally:
        test.write_bytes(before)
    assert result.code == 1
    assert "data.test.file: the file has changed since the run was trained" in result.err


# ── usage ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_of_another_task_is_rejected_with_the_right_command(
    trained: TrainedByKind, call: Call, run: Path, tmp_path: Path
):
    out = tmp_path / "out.txt"
    out.write_text("precious", "utf-8")
    for command, other_run, right_command in (
        ("translate", trained("words").run, "tag"),
        ("classify", trained("words").run, "tag"),
        ("tag", trained("texts").run, "classify"),
        ("tag", run, "translate"),
        ("classify", run, "translate"),
    ):
        result = call(command, other_run, "-o", out, stdin=b"a\n")
        assert (result.code, result.out) == (1, "")
        needed = {"translate": "translation", "tag": "tagging", "classify": "classification"}[command]
        assert f"but this needs a {needed} run; use this one with `saccade {right_command}`" in result.err
        assert out.read_text("utf-8") == "precious"
    result = call("view", trained("words").run, "a")
    assert result.code == 1
    assert "attention can be shown for translation runs only" in result.err


def test_a_damaged_run_does_not_truncate_the_output_file(trained: TrainedByKind, call: Call, tmp_path: Path):
    import shutil

    shutil.copytree(trained("words").run, tmp_path / "run")
    labels = tmp_path / "run" / "codecs" / "labels.json"
    labels.write_bytes(labels.read_bytes().replace(b"C", b"D"))
    (tmp_path / "out.txt").write_text("precious", "utf-8")
    result = call("tag", tmp_path / "run", "-o", tmp_path / "out.txt", stdin=b"a\n")
    assert result.code == 1
    assert "labels.json: checksum mismatch" in result.err
    assert (tmp_path / "out.txt").read_text("utf-8") == "precious"


@pytest.mark.parametrize(
    "arguments",
    [
        ["tag", "RUN", "--columns", "--json"],
        ["tag", "RUN", "nowhere.txt"],
        ["classify", "RUN", "nowhere.txt"],
        ["predict", "RUN", "nowhere.txt"],
        ["tag", "nowhere"],
        ["classify", "nowhere"],
        ["evaluate", "--hyp", "FILE", "--ref", "FILE", "--labels", "a"],
    ],
)
def test_usage_errors_do_not_import_torch(arguments: list[str], trained: TrainedByKind, tmp_path: Path):
    (tmp_path / "file").write_text("a\n", "utf-8")
    paths = {"RUN": str(trained("words").run), "FILE": str(tmp_path / "file")}
    command = [paths.get(argument, argument) for argument in arguments]
    code = (
        "import sys; from saccade.cli import main; code = main(sys.argv[1:]); "
        "sys.exit(99 if 'torch' in sys.modules else code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr


def test_options_of_another_task_are_rejected(trained: TrainedByKind, call: Call, run: Path, tmp_path: Path):
    (tmp_path / "file").write_text("a\n", "utf-8")
    words, file = trained("words").run, tmp_path / "file"
    for command in (
        ("evaluate", words, "--src", file, "--ref", file),
        ("evaluate", words, "--beam", 3),
        ("evaluate", run, "--labels", "a"),
        ("tag", trained("frames").run, "--columns"),
    ):
        result = call(*command)
        assert (result.code, result.out) == (2, ""), command


def test_input_file_cannot_be_the_output_file_of_tag(trained: TrainedByKind, call: Call, tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("a\n", "utf-8")
    result = call("tag", trained("words").run, file, "-o", file)
    assert (result.code, result.out) == (2, "")
