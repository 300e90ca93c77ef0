"""What goes wrong in a training is named, costs little and leaves a run that goes on."""

import contextlib
import errno
import json
import math
import os
import pickle
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

import saccade
from saccade.cli import main
from saccade.errors import RunError
from saccade.recipe import Recipe, read_recipe
from saccade.runs import files, weights
from saccade.runs.folder import CHANGEABLE_KEYS, RunFolder
from saccade.tasks.losses import Loss
from saccade.tasks.translation import Translation, Validation, ValidationSample
from saccade.training import loop
from saccade.training.dry_run import dry_run
from saccade.training.loop import train
from saccade.training.progress import IntervalFigures

Outcome = Callable[[Path], dict[str, Any]]


class Recorder:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.lines: list[IntervalFigures] = []
        self.validations: list[int] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def line(self, line: IntervalFigures) -> None:
        self.lines.append(line)

    def validation(self, step: int, result: Validation, best: bool) -> None:
        self.validations.append(step)

    def close(self) -> None: ...

    @property
    def warnings(self) -> list[str]:
        return [text for text in self.said if text.startswith("warning: ")]


class Crash(Exception):
    """Stands for whatever ends a process."""


def crash_after(patch: pytest.MonkeyPatch, step: int) -> None:
    real = loop.update

    def update(job: Any, state: Any, batches: Any) -> None:
        if state.step == step:
            raise Crash
        real(job, state, batches)

    patch.setattr(loop, "update", update)


def trained(recipe: Recipe, run: Path, until: int | None = None, **options: Any) -> Recorder:
    """Train `run`; with `until`, as far as a crash after that step."""
    report = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        if until is None:
            train(recipe, run, report, **options)
            return report
        crash_after(patch, until)
        with pytest.raises(Crash):
            train(recipe, run, report, **options)
    return report


def metrics(run: Path, key: str = "loss") -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [record for record in records if key in record]


def steps(run: Path) -> list[int]:
    return RunFolder(run).checkpoints.steps()


def step(run: Path, number: int) -> Path:
    return RunFolder(run).checkpoints.at(number)


@pytest.fixture(scope="session")
def recipe(recipe_file: Path) -> Recipe:
    return read_recipe(str(recipe_file)).config


@pytest.fixture
def changed(recipe_file: Path) -> Callable[..., Recipe]:
    """The recipe with `--set` flags."""
    return lambda *flags: read_recipe(str(recipe_file), flags).config


@pytest.fixture(scope="module")
def whole(recipe: Recipe, folder: Path) -> Path:
    """A run that nothing happens to."""
    run = folder / "whole"
    trained(recipe, run)
    return run


@pytest.fixture(scope="module")
def crashed(recipe: Recipe, folder: Path) -> Path:
    """A run that ended after step 19, with checkpoints of steps 6, 12 and 18."""
    run = folder / "crashed"
    trained(recipe, run, until=19)
    assert steps(run) == [6, 12, 18]
    return run


@pytest.fixture
def run(crashed: Path, tmp_path: Path) -> Path:
    """A copy of the crashed run."""
    shutil.copytree(crashed, tmp_path / "run")
    return tmp_path / "run"


# ── damaged files ─────────────────────────────────────────────────────────────────────────────────


def flip(path: Path, bit: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    bit = len(data) * 4 if bit is None else bit
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def flip_checksum(path: Path) -> None:
    """Of a manifest: most other bits of it say nothing that matters."""
    flip(path, 8 * (path.read_bytes().index(b'"sha256": "') + 13))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a bit flipped": flip,
    "its first bit flipped": lambda path: flip(path, 0),
    "its end cut off": lambda path: os.truncate(path, path.stat().st_size // 2),
    "its last byte cut off": lambda path: os.truncate(path, path.stat().st_size - 1),
    "nothing in it": lambda path: os.truncate(path, 0),
    "zeros in it": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "something after its end": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "been removed": Path.unlink,
    "become a folder": lambda path: (path.unlink(), path.mkdir()),
}
IN_CHECKPOINT = ("weights.safetensors", "training.safetensors", "state.json", "manifest.json")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", IN_CHECKPOINT)
def test_a_checkpoint_is_kept_aside_and_the_one_before_used_when_a_file_has(
    name: str, damage: str, run: Path, recipe: Recipe, whole: Path, outcome: Outcome
):
    hurt = step(run, 18) / name
    (flip_checksum if (name, damage) == ("manifest.json", "a bit flipped") else DAMAGES[damage])(hurt)
    if (name, damage) in {("manifest.json", "its last byte cut off")}:
        os.truncate(hurt, hurt.stat().st_size - 1)  # the newline alone is no loss
    content = hurt.read_bytes() if hurt.is_file() else None
    report = trained(recipe, run)
    assert len(report.warnings) == 1
    assert "step-0000018" in report.warnings[0]
    assert "skipped, kept as damaged-step-0000018" in report.warnings[0]
    if not (name == "manifest.json" or damage == "become a folder"):
        assert str(hurt) in report.warnings[0]
    assert "going on from step 12" in report.said
    aside = run / "checkpoints" / "damaged-step-0000018" / name
    assert (aside.read_bytes() if aside.is_file() else None) == content
    assert outcome(run) == outcome(whole)


def test_each_damaged_checkpoint_is_skipped_until_a_whole_one_comes(
    run: Path, recipe: Recipe, whole: Path, outcome: Outcome
):
    for number in (12, 18):
        flip(step(run, number) / "weights.safetensors")
    report = trained(recipe, run)
    assert len(report.warnings) == 2
    assert "going on from step 6" in report.said
    assert outcome(run) == outcome(whole)


def test_a_run_with_nothing_but_damaged_checkpoints_begins_again(
    run: Path, recipe: Recipe, whole: Path, outcome: Outcome
):
    for number in steps(run):
        shutil.rmtree(step(run, number))
        step(run, number).mkdir()
    report = trained(recipe, run)
    assert len(report.warnings) == 3
    assert not [text for text in report.said if text.startswith("going on")]
    assert outcome(run) == outcome(whole)
    aside = sorted(path.name for path in (run / "checkpoints").glob("damaged-*"))
    assert aside == ["damaged-step-0000006", "damaged-step-0000012", "damaged-step-0000018"]


def test_a_checkpoint_that_is_damaged_twice_is_kept_aside_twice(run: Path, recipe: Recipe):
    flip(step(run, 18) / "state.json")
    trained(recipe, run, until=19)
    flip(step(run, 18) / "training.safetensors")
    report = trained(recipe, run)
    assert "kept as damaged-step-0000018-1" in report.warnings[0]


def test_a_damaged_older_checkpoint_does_not_keep_a_run_from_its_end(run: Path, recipe: Recipe):
    flip(step(run, 12) / "weights.safetensors")
    report = trained(recipe, run)
    assert [text for text in report.warnings if "step-0000012" in text]


def test_no_flipped_bit_of_a_manifest_changes_what_is_loaded(run: Path, recipe: Recipe):
    """It is refused, or the bit says nothing about the files."""
    path = step(run, 18) / "manifest.json"
    whole = json.loads(path.read_bytes())["files"]
    accepted = 0
    for byte in range(path.stat().st_size):
        flip(path, 8 * byte + byte % 7)
        with contextlib.suppress(RunError):
            assert files.verify(path.parent)["files"] == whole
            accepted += 1
        flip(path, 8 * byte + byte % 7)
    assert files.verify(path.parent)["files"] == whole
    assert accepted < path.stat().st_size / 2


@pytest.mark.parametrize("name", ["joint.model", "manifest.json"])
@pytest.mark.parametrize("damage", ["a bit flipped", "its end cut off", "nothing in it", "zeros in it", "been removed"])
def test_training_and_loading_name_a_tokenizer_that_has(
    damage: str, name: str, run: Path, recipe_file: Path, capsys: pytest.CaptureFixture[str]
):
    hurt = run / "tokenizer" / name
    (flip_checksum if (name, damage) == ("manifest.json", "a bit flipped") else DAMAGES[damage])(hurt)
    for command in (["train", str(recipe_file), "--run", str(run)], ["view", str(run), "a b"]):
        assert main(command) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert str(run / "tokenizer") in err
        assert "Traceback" not in err
    assert steps(run) == [6, 12, 18]


@pytest.mark.parametrize("name", ["config.toml", "data.json"])
@pytest.mark.parametrize("damage", ["its end cut off", "zeros in it", "nothing in it"])
def test_a_run_is_refused_in_words_when_its_record_has(damage: str, name: str, run: Path, recipe: Recipe):
    DAMAGES[damage](run / name)
    with pytest.raises(RunError, match=re.escape(str(run))):
        train(recipe, run, Recorder())


def test_lost_metrics_do_not_come_back_as_zeros(run: Path, recipe: Recipe):
    (run / "metrics.jsonl").unlink()
    trained(recipe, run)
    assert b"\0" not in (run / "metrics.jsonl").read_bytes()


# ── folders that lie ──────────────────────────────────────────────────────────────────────────────


def lie(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((folder / "manifest.json").read_bytes())
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")


@pytest.mark.parametrize("name", ["../step-0000012/state.json", "a/../../step-0000012/state.json", "/etc/hostname"])
def test_a_manifest_that_leads_out_of_its_folder_is_refused(name: str, run: Path):
    folder = step(run, 18)
    target = folder / name
    facts = {"bytes": target.stat().st_size, "sha256": files.sha256(target)} if target.exists() else {}
    lie(folder, lambda manifest: manifest["files"].update({name: facts}))
    with pytest.raises(RunError, match="leads out of its folder"):
        files.verify(folder)


def test_a_link_in_a_checkpoint_is_refused(run: Path):
    weights = step(run, 18) / "weights.safetensors"
    weights.rename(run / "elsewhere")
    weights.symlink_to(run / "elsewhere")
    with pytest.raises(RunError, match="leads out of its folder"):
        files.verify(step(run, 18))


def test_a_linked_folder_in_a_checkpoint_is_refused(run: Path):
    folder, outside = step(run, 18), run / "outside"
    outside.mkdir()
    shutil.copy(folder / "state.json", outside)
    (folder / "inner").symlink_to(outside)
    lie(
        folder,
        lambda manifest: manifest["files"].update({"inner/state.json": manifest["files"]["state.json"]}),
    )
    with pytest.raises(RunError, match="leads out of its folder"):
        files.verify(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest["files"]["weights.safetensors"].update(bytes=1),
        lambda manifest: manifest["files"]["weights.safetensors"].update(sha256="0" * 64),
        lambda manifest: manifest["files"]["weights.safetensors"].pop("sha256"),
        lambda manifest: manifest["files"].update({"weights.safetensors": None}),
        lambda manifest: manifest["files"].update({"more.safetensors": {"bytes": 0, "sha256": ""}}),
        lambda manifest: manifest.pop("files"),
        lambda manifest: manifest.update(files=["weights.safetensors"]),
        lambda manifest: manifest.update(format=99),
    ],
    ids=[
        "size",
        "checksum",
        "no checksum",
        "no facts",
        "a file too many",
        "no files",
        "a list",
        "a later format",
    ],
)
def test_weights_are_not_loaded_when_the_manifest_lies_about(change: Callable[[Any], object], run: Path):
    lie(step(run, 18), change)
    with pytest.raises(RunError, match="step-0000018"):
        _ = saccade.load(run, "latest").model


def test_weights_are_not_loaded_when_the_manifest_leaves_them_out(run: Path):
    lie(step(run, 18), lambda manifest: manifest["files"].pop("weights.safetensors"))
    flip(step(run, 18) / "weights.safetensors")
    with pytest.raises(RunError):
        _ = saccade.load(run, "latest").model


@pytest.mark.parametrize("name", ["../checkpoints/step-0000018", "..", "/tmp", "step-0000099", "bset"])
def test_a_checkpoint_is_looked_for_in_the_run_only(name: str, run: Path):
    with pytest.raises(RunError, match=r"there is no checkpoint .*there are: best, latest, step-0000006"):
        saccade.load(run, name)


@pytest.mark.parametrize("mark", ["../../elsewhere", "/etc", "step-0000099", "", "\udcff"])
def test_a_mark_that_leads_nowhere_is_not_followed(mark: str, run: Path):
    (run / "latest").write_bytes(mark.encode(errors="surrogateescape"))
    assert RunFolder(run).checkpoints.marked("latest") is None


def test_a_checkpoint_can_be_named_without_its_zeros(run: Path):
    assert saccade.load(run, "step-12").checkpoint.name == "step-0000012"


# ── one trainer, one config, one text ─────────────────────────────────────────────────────────────


def test_a_second_trainer_is_refused_with_the_first_ones_pid(run: Path, recipe: Recipe, outcome: Outcome):
    before = outcome(run)
    with RunFolder(run).locked(), pytest.raises(RunError, match=f"being trained by process {os.getpid()};"):
        train(recipe, run, Recorder())
    assert outcome(run) == before


def test_a_lock_that_a_dead_process_left_is_no_obstacle(run: Path, recipe: Recipe, whole: Path, outcome: Outcome):
    (run / "lock").write_text("1\n", "utf-8")
    trained(recipe, run)
    assert outcome(run) == outcome(whole)
    assert (run / "lock").read_text("utf-8") == f"{os.getpid()}\n"


def test_two_processes_on_one_run(tmp_path: Path, recipe_file: Path, changed: Callable[..., Recipe]):
    run = tmp_path / "run"
    command = [sys.executable, "-m", "saccade", "train", str(recipe_file), "--run", str(run)]
    first = subprocess.Popen([*command, "--set", "train.updates=1000000"], stderr=subprocess.DEVNULL)
    long = changed("train.updates=1000000")
    try:
        end = time.monotonic() + 60
        while not (run / "latest").exists():
            assert time.monotonic() < end
            assert first.poll() is None
            time.sleep(0.01)
        with pytest.raises(RunError, match=f"process {first.pid};"):
            train(long, run, Recorder())
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    last = max(steps(run))
    report = trained(long, run, until=last)
    assert f"going on from step {last:,}" in report.said


KEYS = {
    "seed": 4,
    "data.longest": 19,
    "data.skip_bad": "true",
    "data.train.rows": 61,
    "data.dev.seed": 2,
    "data.tokenizer.least": 2,
    "task.smoothing": 0.2,
    "model.dim": 32,
    "model.encoder.depth": 2,
    "model.decoder.block.feed_forward.inner": 64,
    "model.dropout.residual": 0.1,
    "train.batch_tokens": 64,
    "train.update_tokens": 0,
    "train.optimizer.eps": 1e-8,
    "train.schedule.rate": 0.02,
    "train.validate_every": 5,
    "train.best_by": '"bleu"',
    "decode.search.size": 2,
}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("allow_change", [False, True], ids=["", "with allow_change"])
def test_a_run_goes_on_with_the_same_config_only(
    allow_change: bool, key: str, run: Path, changed: Callable[..., Recipe], outcome: Outcome
):
    before = outcome(run)
    with pytest.raises(RunError, match=rf"\n  {re.escape(key)}: .* → ") as refused:
        train(changed(f"{key}={KEYS[key]}"), run, Recorder(), allow_change=allow_change)
    assert str(refused.value).count(" → ") == 1
    assert outcome(run) == before


def test_all_keys_that_differ_are_listed(run: Path, changed: Callable[..., Recipe]):
    with pytest.raises(RunError) as refused:
        train(changed("seed=4", "train.keep=3", "train.schedule.kind=constant"), run, Recorder())
    listed = re.findall(r"\n  (\S+): (.*) → (.*)", str(refused.value))
    assert {key for key, _, _ in listed} == {
        "seed",
        "train.keep",
        "train.schedule.kind",
        "train.schedule.rate",
    } | {"train.schedule.warmup"}
    assert ("seed", "3", "4") in listed
    assert "--run DIR" in str(refused.value)


@pytest.mark.parametrize("flag", ["data.joint=false", "data.tokenizer=sentencepiece", "data.tokenizer=characters"])
def test_a_change_of_the_tokenizer_is_refused_by_its_key(flag: str, run: Path, changed: Callable[..., Recipe]):
    with pytest.raises(RunError, match=rf"\n  {flag.partition('=')[0]}[.a-z]*: .* → "):
        train(changed(flag, "model.shared_embeddings=false"), run, Recorder())


HARMLESS_VALUES = {
    "train.updates": 30,
    "train.minutes": 60.0,
    "train.stop_at": 0.001,
    "train.patience": 9,
    "train.keep": 3,
    "train.average": 2,
    "train.log_every": 3,
    "train.ranks": "sharded",
}


def test_harmless_keys_are_those_tried_here():
    assert {*HARMLESS_VALUES, "data.folder"} == CHANGEABLE_KEYS


@pytest.mark.parametrize("key", HARMLESS_VALUES)
def test_a_harmless_key_may_change_if_asked(key: str, run: Path, changed: Callable[..., Recipe]):
    other = changed(f"{key}={HARMLESS_VALUES[key]}")
    with pytest.raises(RunError, match=rf"  {key}: .* → [\s\S]*with --allow-change these may differ: .*{key}"):
        train(other, run, Recorder())
    trained(other, run, until=20, allow_change=True)
    trained(other, run)  # from now on it is the run's own


def test_harm_is_listed_alone_when_harmless_changes_are_allowed(run: Path, changed: Callable[..., Recipe]):
    with pytest.raises(RunError) as refused:
        train(changed("seed=4", "train.keep=3"), run, Recorder(), allow_change=True)
    assert re.findall(r"\n  (\S+): ", str(refused.value)) == ["seed"]


# ── text in files ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for split, count in (("train", 40), ("dev", 6), ("test", 6)):
        words = [" ".join("abcdefgh"[(n * k) % 8] for k in range(2, 4 + n % 4)) for n in range(count)]
        (folder / f"{split}.en").write_text("".join(f"{line}\n" for line in words), "utf-8")
        (folder / f"{split}.de").write_text("".join(f"{line[::-1]}\n" for line in words), "utf-8")
    return folder


def of_files(changed: Callable[..., Recipe], folder: Path, *flags: str) -> Recipe:
    splits = [f'data.{s}={{kind="pairs", src="{s}.en", tgt="{s}.de"}}' for s in ("train", "dev", "test")]
    return changed(f'data.folder="{folder}"', *splits, "train.updates=12", *flags)


@pytest.mark.parametrize(("split", "side"), [("train", "src"), ("train", "tgt"), ("dev", "src"), ("test", "tgt")])
def test_a_run_goes_on_with_the_same_text_only(
    split: str, side: str, corpus: Path, tmp_path: Path, changed: Callable[..., Recipe]
):
    recipe = of_files(changed, corpus)
    trained(recipe, tmp_path / "run", until=7)
    path = corpus / f"{split}.{'en' if side == 'src' else 'de'}"
    text = path.read_text("utf-8")
    path.write_text(text.replace("c", "d", 1), "utf-8")
    for allow_change in (False, True):
        with pytest.raises(RunError, match=rf"\n  data\.{split}\.{side}: its text has changed"):
            train(recipe, tmp_path / "run", Recorder(), allow_change=allow_change)
    path.write_text(text, "utf-8")
    trained(recipe, tmp_path / "run")


def test_text_may_move_to_another_folder(
    corpus: Path, tmp_path: Path, changed: Callable[..., Recipe], outcome: Outcome
):
    trained(of_files(changed, corpus), tmp_path / "still")
    trained(of_files(changed, corpus), tmp_path / "moved", until=7)
    elsewhere = corpus.rename(tmp_path / "elsewhere")
    trained(of_files(changed, elsewhere), tmp_path / "moved")
    still, moved = outcome(tmp_path / "still"), outcome(tmp_path / "moved")
    assert still.pop("config.toml") != moved.pop("config.toml")  # the new place is remembered
    assert still == moved


def test_bad_lines_stop_training_before_it_begins(corpus: Path, tmp_path: Path, changed: Callable[..., Recipe]):
    with (corpus / "train.en").open("ab") as file:
        file.write(b"a b\r\nc \xff\n")
    with (corpus / "train.de").open("ab") as file:
        file.write(b"a b\nc d\n")
    with pytest.raises(saccade.DataError) as refused:
        train(of_files(changed, corpus), tmp_path / "run", Recorder())
    assert "train.en:41: the line ends in CRLF" in str(refused.value)
    assert "train.en:42: byte 0xff" in str(refused.value)
    assert not (tmp_path / "run" / "config.toml").exists()


def test_bad_lines_are_left_out_and_counted_if_asked(corpus: Path, tmp_path: Path, changed: Callable[..., Recipe]):
    for name, more in (
        ("train.en", b"a b\r\nc \xff\nx\n\n"),
        ("train.de", b"a b\nc d\nx\nb\n"),
        ("dev.de", b"z\n"),
    ):
        with (corpus / name).open("ab") as file:
            file.write(more)
    report = trained(of_files(changed, corpus, "data.skip_bad=true", "data.longest=4"), tmp_path / "run")
    told = next(text for text in report.said if "to train on" in text)
    assert "1 with an empty side" in told
    assert "2 bad lines left out), 6 to validate on (1 bad lines left out)" in told
    kept, long = (int(n) for n in re.match(r"(\d+) pairs .* (\d+) too long", told).groups())  # type: ignore[union-attr]
    assert long > 0
    assert kept + long + 1 == 42


# ── gradients ─────────────────────────────────────────────────────────────────────────────────────


def spoil(patch: pytest.MonkeyPatch, factor: float, when: Callable[[int], bool]) -> list[Any]:
    """Multiply the loss of some updates (numbered from 1) by NaN or ∞; the batches of the last one are returned."""
    real_loss, real_update = Translation.loss, loop.update
    now: list[Any] = [0, []]

    def update(job: Any, state: Any, batches: Any) -> None:
        now[:] = state.step + 1, batches
        real_update(job, state, batches)

    def loss(self: Translation, model: Any, batch: Any) -> Loss:
        found = real_loss(self, model, batch)
        bad = when(now[0]) and batch is now[1][0]  # one of the batches of an update is enough
        return Loss(found.total * factor, found.count, found.logged) if bad else found

    patch.setattr(loop, "update", update)
    patch.setattr(Translation, "loss", loss)
    return now


@pytest.mark.parametrize("factor", [math.nan, math.inf, -math.inf])
def test_an_update_whose_gradient_is_not_finite_is_skipped_and_counted(
    factor: float, tmp_path: Path, recipe: Recipe, whole: Path, monkeypatch: pytest.MonkeyPatch
):
    spoil(monkeypatch, factor, lambda number: number in (3, 9, 10))
    trained(recipe, tmp_path / "run")
    assert [record["skipped"] for record in metrics(tmp_path / "run")] == [1, 1, 3, 3, 3, 3]
    assert all(math.isfinite(record["loss"]) for record in metrics(tmp_path / "run"))
    weights = load_file(step(tmp_path / "run", 24) / "weights.safetensors")
    assert all(bool(tensor.isfinite().all()) for tensor in weights.values())
    assert metrics(tmp_path / "run")[-1] != metrics(whole)[-1]


def test_a_skipped_update_leaves_weights_and_optimizer_alone(
    tmp_path: Path, changed: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
):
    recipe = changed("train.updates=2", "train.validate_every=1", "train.average=0")
    spoil(monkeypatch, math.nan, lambda number: number == 2)
    trained(recipe, tmp_path / "run")
    first, second = (step(tmp_path / "run", number) for number in (1, 2))
    one, two = (load_file(folder / "weights.safetensors") for folder in (first, second))
    assert all(torch.equal(one[name], two[name]) for name in one)
    one, two = (load_file(folder / "training.safetensors") for folder in (first, second))
    assert [name for name in one if not torch.equal(one[name], two[name])] == ["random"]


def test_skipped_updates_are_remembered_by_a_run_that_goes_on(
    tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch, outcome: Outcome
):
    spoil(monkeypatch, math.nan, lambda number: number in (3, 17, 18, 19))
    trained(recipe, tmp_path / "still")
    trained(recipe, tmp_path / "crashed", until=18)
    trained(recipe, tmp_path / "crashed")
    assert [record["skipped"] for record in metrics(tmp_path / "crashed")] == [1, 1, 1, 1, 4, 4]
    assert outcome(tmp_path / "crashed") == outcome(tmp_path / "still")


def test_nine_skipped_updates_in_a_row_are_borne(tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch):
    spoil(monkeypatch, math.nan, lambda number: number % 10 != 1)
    trained(recipe, tmp_path / "run")
    assert metrics(tmp_path / "run")[-1]["skipped"] == 21


def test_ten_skipped_updates_in_a_row_stop_with_the_batch_named(
    corpus: Path, tmp_path: Path, changed: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
):
    last = spoil(monkeypatch, math.nan, lambda number: number > 8)
    recipe = of_files(changed, corpus, "train.updates=24")
    with pytest.raises(RunError, match="not finite in 10 updates in a row, last at step 18 in the batch") as stopped:
        train(recipe, tmp_path / "run", Recorder())
    named = re.findall(r"train\.en:(\d+)", str(stopped.value))
    rows = {row + 1 for batch in last[1] for row in batch.rows}
    assert named
    assert {int(number) for number in named} <= rows
    assert steps(tmp_path / "run") == [6, 12]
    monkeypatch.undo()
    trained(recipe, tmp_path / "run")  # once the cause is gone it goes on


def test_an_interval_of_skipped_updates_claims_no_loss(tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch):
    spoil(monkeypatch, math.nan, lambda number: 5 <= number <= 8)
    trained(recipe, tmp_path / "run")
    assert metrics(tmp_path / "run")[1]["loss"] != 0.0


@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_a_model_that_went_beyond_all_numbers_is_reported_in_words(
    search: str, tmp_path: Path, changed: Callable[..., Recipe]
):
    rate = 'train.schedule={kind="constant", rate=1e30}'
    recipe = changed(rate, "train.validate_every=3", f"train.validation.search={search}")
    with pytest.raises(RunError, match="not finite"):
        train(recipe, tmp_path / "run", Recorder())


# ── the disk ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of three megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root may mount a small disk")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def fill(disk: Path, leave: int) -> Path:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(max(0, shutil.disk_usage(disk).free - leave)))
    return ballast


def fill_before(patch: pytest.MonkeyPatch, step: int, disk: Path, leave: int) -> None:
    real = loop.update

    def update(job: Any, state: Any, batches: Any) -> None:
        if state.step + 1 == step:
            fill(disk, leave)
        real(job, state, batches)

    patch.setattr(loop, "update", update)


def intact(run: Path, last: int) -> None:
    """The last checkpoint is whole and can be used; nothing half written is left."""
    assert max(steps(run)) == last
    files.verify(step(run, last))
    assert saccade.load(run, "latest").checkpoint == step(run, last)
    assert len(saccade.load(run, "latest").translate(["b a"])) == 1
    assert list(run.rglob(".*")) == []


def missing_bytes(text: str) -> int:
    found = re.search(r"needs ([\d,]+) bytes, ([\d,]+) are free, ([\d,]+) are missing", text)
    assert found, text
    needed, free, missing = (int(number.replace(",", "")) for number in found.groups())
    assert missing == needed - free
    return missing


def test_a_disk_that_fills_up_is_reported_with_the_bytes_that_are_missing(
    small_disk: Path, recipe: Recipe, whole: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome
):
    run = small_disk / "run"
    with pytest.MonkeyPatch.context() as patch:
        fill_before(patch, 17, small_disk, 500_000)
        with pytest.raises(RunError, match="the disk is full") as full:
            train(recipe, run, Recorder())
    intact(run, 12)
    missing = missing_bytes(str(full.value))
    assert 400_000 < missing < 1_500_000
    assert "the last checkpoint is intact: make room and run the same command again" in str(full.value)
    (small_disk / "ballast").unlink()
    report = trained(recipe, run)
    assert "going on from step 12" in report.said
    assert outcome(run) == outcome(whole)


def test_a_disk_that_fills_up_while_a_checkpoint_is_written_leaves_the_last_one(
    small_disk: Path, recipe: Recipe, whole: Path, outcome: Outcome
):
    run = small_disk / "run"
    with pytest.MonkeyPatch.context() as patch:
        fill_before(patch, 17, small_disk, 30_000)
        patch.setattr(files, "_room", lambda folder, needed: None)  # there was room a moment ago
        with pytest.raises(RunError, match="the disk is full") as full:
            train(recipe, run, Recorder())
    assert missing_bytes(str(full.value)) > 0
    intact(run, 12)
    (small_disk / "ballast").unlink()
    trained(recipe, run)
    assert outcome(run) == outcome(whole)


def test_a_disk_without_a_single_byte_is_reported_with_the_bytes_that_are_missing(small_disk: Path, recipe: Recipe):
    run = small_disk / "run"
    with pytest.MonkeyPatch.context() as patch:
        real = loop.update

        def update(job: Any, state: Any, batches: Any) -> None:
            if state.step == 12:
                (run / "metrics.jsonl").write_bytes(
                    (run / "metrics.jsonl").read_bytes().ljust(4096 * 2, b"\n")
                )  # to the end of a page
                fill(small_disk, 0)
            real(job, state, batches)

        patch.setattr(loop, "update", update)
        with pytest.raises(RunError, match="the disk is full"):
            train(recipe, run, Recorder())


def test_a_full_disk_is_noticed_before_writing(
    run: Path, recipe: Recipe, whole: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome
):
    """As above, where nobody may mount."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9 - 7, 7))  # type: ignore[attr-defined]
        with pytest.raises(RunError, match="the disk is full") as full:
            train(recipe, run, Recorder())
    assert missing_bytes(str(full.value)) > 1_000_000
    intact(run, 18)
    trained(recipe, run)
    assert outcome(run) == outcome(whole)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
            "disk is full",
        ),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "disk is full"),
        (OSError(errno.EIO, "Input/output error"), "cannot be written: Input/output error"),
        (SafetensorError("something else"), "cannot be written: something else"),
    ],
    ids=["full", "quota", "broken", "unknown"],
)
def test_a_failed_write_leaves_the_last_checkpoint(
    error: Exception, said: str, run: Path, recipe: Recipe, whole: Path, outcome: Outcome
):
    real, calls = weights.save_file, []

    def save_file(tensors: Any, path: Path) -> None:
        calls.append(path)
        real(tensors, path)
        if len(calls) == 2:  # the optimizer's file
            os.truncate(path, 100)
            raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "save_file", save_file)
        with pytest.raises(RunError, match=said) as failed:
            train(recipe, run, Recorder())
    assert "\n" not in str(failed.value)
    intact(run, 18)
    trained(recipe, run)
    assert outcome(run) == outcome(whole)


@pytest.mark.parametrize("exists", [False, True], ids=["new", "existing"])
def test_a_run_in_a_folder_that_cannot_be_written_is_refused_before_training(
    exists: bool, tmp_path: Path, crashed: Path, recipe_file: Path, capsys: pytest.CaptureFixture[str]
):
    place = tmp_path / "place"
    place.mkdir()
    tmpfs = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    mounted = os.getuid() == 0 and subprocess.run(tmpfs, capture_output=True).returncode == 0
    if os.getuid() == 0 and not mounted:
        pytest.skip("root may write anywhere")
    try:
        if exists:
            shutil.copytree(crashed, place / "run")
        if mounted:
            subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        else:
            for path in [place, *place.rglob("*")]:
                path.chmod(0o555 if path.is_dir() else 0o444)
        assert main(["train", str(recipe_file), "--run", str(place / "run")]) == 1
    finally:
        if mounted:
            subprocess.run(["umount", str(place)], check=True)
        else:
            for path in [place, *place.rglob("*")]:
                path.chmod(0o755)
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(
        rf"saccade: {place / 'run'}: cannot be written: (Read-only file system|Permission denied)\n", err
    )


def test_a_run_below_a_file_is_refused_before_training(tmp_path: Path, recipe: Recipe):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be written: Not a directory"):
        train(recipe, tmp_path / "file" / "run", Recorder())


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o000, 0o666)])
def test_files_have_the_mode_that_the_user_wants(mask: int, mode: int, tmp_path: Path, changed: Callable[..., Recipe]):
    before = os.umask(mask)
    try:
        trained(changed("train.updates=4", "train.validate_every=2", "train.average=2"), tmp_path / "run")
        assert os.umask(mask) == mask  # and it is left as it was
    finally:
        os.umask(before)
    written = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert {path.name for path in written} >= {
        "weights.safetensors",
        "manifest.json",
        "joint.model",
        "config.toml",
    }
    assert [(path, oct(m)) for path in written if (m := stat.S_IMODE(path.stat().st_mode)) != mode] == []


def test_a_run_holds_no_pickle(whole: Path):
    written = [path for path in whole.rglob("*") if path.is_file()]
    suffixes = {path.suffix for path in written}
    assert suffixes == {"", ".json", ".jsonl", ".model", ".safetensors", ".toml"}
    for path in written:
        data = path.read_bytes()
        assert not data.startswith((b"\x80", b"PK")), path  # pickle, and the zip that torch puts it in
        if path.suffix == ".safetensors":
            header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
            assert {facts["dtype"] for name, facts in header.items() if name != "__metadata__"} <= {
                "F32",
                "U8",
            }
        else:
            data.decode()  # plain text


def test_loading_a_run_unpickles_nothing(whole: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("unpickled")

    for owner, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(owner, name, refuse)
    assert len(saccade.load(whole).translate(["b a c"])) == 1


# ── warnings, stops, what is kept ─────────────────────────────────────────────────────────────────


def test_going_on_with_other_threads_is_said_not_to_be_exact(run: Path, recipe: Recipe):
    torch.set_num_threads(2)
    try:
        report = trained(recipe, run)
    finally:
        torch.set_num_threads(1)
    assert report.warnings == ["warning: not bit-exact: threads was 1, is 2"]


def test_going_on_with_another_torch_is_said_not_to_be_exact(run: Path, recipe: Recipe):
    lie(step(run, 18), lambda manifest: manifest.update(torch="1.0"))
    assert trained(recipe, run).warnings == [f"warning: not bit-exact: torch was 1.0, is {torch.__version__}"]


def test_going_on_as_before_warns_of_nothing(run: Path, recipe: Recipe):
    report = trained(recipe, run)
    assert report.warnings == []
    assert report.validations == [24]


def judged(patch: pytest.MonkeyPatch, figures: Sequence[float]) -> None:
    """Validations that give these figures, whatever the model does."""
    rest = iter(figures)

    def validate(*_: Any) -> Validation:
        figure = float(next(rest))
        return Validation(
            dict.fromkeys(("loss", "bleu", "chrf", "exact_match"), figure), (ValidationSample("a", "b", "c"),)
        )

    patch.setattr(Translation, "validate", validate)


PATIENCE = "train.patience validations brought nothing better"


@pytest.mark.parametrize(
    ("flags", "figures", "stop", "reason"),
    [
        (["train.updates=10"], [4, 3], 10, "train.updates is reached"),
        (["train.patience=2"], [4, 3, 3, 5], 24, PATIENCE),
        (["train.patience=1"], [4, 3, 2, 1], 24, "train.updates is reached"),
        (
            ["train.patience=2", "train.best_by=bleu"],
            [4, 3, 3],
            18,
            PATIENCE,
        ),
        (["train.stop_at=3.0"], [4, 3], 12, "train.stop_at is reached"),
        (["train.stop_at=3.0", "train.best_by=chrf"], [1, 2, 3], 18, "train.stop_at is reached"),
        (["train.minutes=1e-9"], [4], 1, "train.minutes is reached"),
    ],
)
def test_training_stops_when(
    flags: list[str],
    figures: list[float],
    stop: int,
    reason: str,
    tmp_path: Path,
    changed: Callable[..., Recipe],
    monkeypatch: pytest.MonkeyPatch,
):
    judged(monkeypatch, figures)
    report = trained(changed("train.average=0", *flags), tmp_path / "run")
    assert report.said[-1] == f"stopped after {stop} updates: {reason}"
    assert max(steps(tmp_path / "run")) == stop
    assert report.validations[-1] == stop  # what is kept has been looked at


@pytest.mark.parametrize(
    ("best_by", "figures", "keep", "kept", "best"),
    [
        ("bleu", [10, 50, 20, 30], 1, [12, 24], 12),
        ("bleu", [60, 50, 20, 30], 2, [6, 18, 24], 6),
        ("bleu", [10, 10, 10, 10], 3, [6, 12, 18, 24], 6),  # an equal figure is not better
        ("loss", [4, 3, 2, 1], 1, [24], 24),
        ("loss", [1, 2, 3, 4], 9, [6, 12, 18, 24], 6),
    ],
)
def test_the_last_checkpoints_and_the_best_are_kept(
    best_by: str,
    figures: list[float],
    keep: int,
    kept: list[int],
    best: int,
    tmp_path: Path,
    changed: Callable[..., Recipe],
    monkeypatch: pytest.MonkeyPatch,
):
    judged(monkeypatch, figures)
    run = tmp_path / "run"
    trained(changed(f"train.best_by={best_by}", f"train.keep={keep}", "train.average=0"), run)
    assert steps(run) == kept
    found = RunFolder(run).checkpoints
    assert found.find("best") == found.find("auto") == found.at(best)
    assert found.find("latest") == found.at(24)
    assert not (run / "checkpoints" / "average").exists()
    assert [record["best"] for record in metrics(run, "validation")].count(True) >= 1


def test_the_average_is_the_mean_of_the_last_weights(whole: Path):
    last = [load_file(step(whole, number) / "weights.safetensors") for number in (12, 18, 24)]
    average = load_file(whole / "checkpoints" / "average" / "weights.safetensors")
    assert average.keys() == last[0].keys()
    for name, tensor in average.items():
        mean = torch.stack([weights[name].double() for weights in last]).mean(0)
        assert torch.allclose(tensor.double(), mean, rtol=1e-7, atol=1e-12), name
        assert not torch.equal(tensor, last[-1][name]), name
    assert saccade.load(whole).checkpoint.name == "average"
    assert json.loads((whole / "checkpoints/average/manifest.json").read_bytes())["averaged"] == [12, 18, 24]


def test_a_run_too_short_for_an_average_has_none(tmp_path: Path, changed: Callable[..., Recipe]):
    trained(changed("train.updates=6"), tmp_path / "run")
    assert saccade.load(tmp_path / "run").checkpoint.name == "step-0000006"


def test_a_dry_run_tells_the_cost_and_writes_nothing(
    tmp_path: Path,
    recipe_file: Path,
    whole: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    assert main(["train", str(recipe_file), "--dry-run"]) == 0
    out, _ = capsys.readouterr()
    facts = {line[:17].strip(): line[17:] for line in out.splitlines()}
    parameters = sum(tensor.numel() for tensor in load_file(step(whole, 24) / "weights.safetensors").values())
    assert facts["parameters"] == f"{parameters:,}"
    assert re.fullmatch(r"[\d,]+ MB, with the largest batch", facts["peak memory"])
    assert re.match(r"\d+:\d\d", facts["time an epoch"])
    assert re.match(r"\d+:\d\d to the last update", facts["whole training"])
    one = sum((step(whole, 24) / name).stat().st_size for name in IN_CHECKPOINT) + weights.METADATA_BYTES
    told = re.fullmatch(r"([\d,]+) MB in 5 checkpoints", facts["disk"])
    assert told
    assert float(told[1]) == pytest.approx(5 * one / 1e6, abs=0.6)
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_of_an_existing_run_leaves_it_alone(run: Path, recipe: Recipe, outcome: Outcome):
    before = outcome(run)
    cost = dry_run(recipe, run, Recorder())
    assert cost.epoch_seconds > 0
    assert outcome(run) == before
