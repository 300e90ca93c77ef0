"""A training starts with the weights and tokenizers of another run, says what it adopted, and needs the parent no more
after its first checkpoint."""

import json
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from saccade.cli.report import draw_report
from saccade.errors import ConfigError, DataError, RunError
from saccade.models.assemble import Model
from saccade.recipe import Recipe, recipe_of
from saccade.runs.files import sha256
from saccade.runs.folder import RunFolder
from saccade.runs.weights import load_weights
from saccade.training import start
from saccade.training.job import TrainingJob, prepare
from training.helpers import Contents, Recorder, checkpoint, flip_bit, train_run
from training.kill_driver import Driver, Job, stderr_of

RecipeWith = Callable[..., Recipe]


@pytest.fixture
def parent(finished_run: Path, tmp_path: Path) -> Path:
    """A copy of a finished run."""
    return Path(shutil.copytree(finished_run, tmp_path / "parent"))


@pytest.fixture
def tuned_recipe(recipe_with: RecipeWith, parent: Path) -> RecipeWith:
    """`tuned_recipe(*flags)`: the recipe of the parent, with other data and another seed, that starts from it."""
    return lambda *flags: recipe_with("seed=5", "data.train.seed=8", f"train.start_from={parent}", *flags)


def prepared(recipe: Recipe, folder: Path) -> tuple[TrainingJob, Recorder]:
    report = Recorder()
    return prepare(recipe, RunFolder(folder / "new"), report), report


def weights_of(run: Path, name: str) -> dict[str, torch.Tensor]:
    return load_file(RunFolder(run).checkpoints.find(name) / "weights.safetensors")


def check_equals_checkpoint(model: Model, run: Path, name: str) -> None:
    """Every tensor of the model equals that of the checkpoint."""
    for tensor, value in weights_of(run, name).items():
        assert torch.equal(model.state_dict()[tensor], value), tensor


# ── what is adopted ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["auto", "average", "best", "latest", "step-18"])
def test_training_starts_with_the_weights_of_the_chosen_checkpoint(
    name: str, tuned_recipe: RecipeWith, parent: Path, tmp_path: Path
) -> None:
    job, report = prepared(tuned_recipe(f"train.start_checkpoint={name}"), tmp_path)
    check_equals_checkpoint(job.model, parent, name)
    folder, count = RunFolder(parent).checkpoints.find(name), len(weights_of(parent, name))
    assert f"started from {parent} ({folder.name}): adopted {count} of {count} tensors, " in "\n".join(report.messages)
    assert job.parent is not None
    assert job.parent["sha256"] == sha256(folder / "weights.safetensors")
    assert job.parent["checkpoint"] == folder.name
    assert (job.parent["fresh"], job.parent["unused"]) == ({}, ())


def test_comparison_detects_an_adopted_tensor_that_was_dropped(
    tuned_recipe: RecipeWith, parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = start.weights_by_all_names

    def without_one(folder: Path) -> Any:
        weights, manifest = read(folder)
        weights.pop("encoder.layers.0.self.query.weight")
        return weights, manifest

    monkeypatch.setattr(start, "weights_by_all_names", without_one)
    job, report = prepared(tuned_recipe(), tmp_path)
    assert "  fresh (no tensor of this name in the parent): encoder.layers.0.self.query.weight" in report.messages
    with pytest.raises(AssertionError, match=r"encoder\.layers\.0\.self\.query\.weight"):
        check_equals_checkpoint(job.model, parent, "auto")


def test_tokenizers_of_the_parent_are_taken_along(tuned_recipe: RecipeWith, parent: Path, tmp_path: Path) -> None:
    recipe = tuned_recipe("data.train.symbols=5")  # from these rows another tokenizer would be learned
    job, report = prepared(recipe, tmp_path)
    assert "learning the tokenizer" not in report.messages
    old = RunFolder(parent)
    stored = old.codecs(old.config())
    assert stored is not None
    assert job.codecs.source.dump() == stored.source.dump()
    learned, _ = prepared(
        recipe.model_copy(update={"train": recipe.train.model_copy(update={"start_from": ""})}), tmp_path
    )
    assert learned.codecs.source.dump() != stored.source.dump()


def test_tensors_of_another_model_are_adopted_by_name_and_shape(
    tuned_recipe: RecipeWith, parent: Path, tmp_path: Path
) -> None:
    flags = ["model.encoder.depth=2", "model.decoder.block.feed_forward.inner=24", "model.shared_embeddings=false"]
    job, report = prepared(tuned_recipe(*flags), tmp_path)
    assert job.parent is not None
    fresh, text = job.parent["fresh"], "\n".join(report.messages)
    assert {name.rpartition(".layers.")[0] + name.rpartition(".layers.")[2][:2] for name in fresh} == {
        "encoder1.",
        "decoder0.",
    }
    adopted = next(line for line in report.messages if line.startswith("  adopted: "))
    assert "decoder.layers.0.cross.*, decoder.layers.0.feed_forward.down.bias, decoder.layers.0.residual" in adopted
    assert "encoder.final_norm.*, encoder.layers.0.*" in adopted
    assert fresh["decoder.layers.0.feed_forward.up.weight"] == "shape [24, 16], in the parent [32, 16]"
    assert "the model differs from the parent's in model.decoder.block.feed_forward.inner (32 → 24), " in text
    assert "unused tensors of the parent: decoder.layers.0.feed_forward.down.weight, " in text
    table = weights_of(parent, "auto")["encoder.embedding.table.weight"]
    assert torch.equal(job.model.state_dict()["decoder.embedding.table.weight"], table), "shared in the parent only"


def test_weights_that_are_frozen_at_random_values_are_named(tuned_recipe: RecipeWith, tmp_path: Path) -> None:
    _, report = prepared(tuned_recipe("model.encoder.depth=2", 'train.freeze=["encoder.*"]'), tmp_path)
    warning = next(message for message in report.messages if message.startswith("warning: train.freeze keeps the "))
    assert "encoder.layers.1." in warning
    assert "encoder.layers.0." not in warning
    _, report = prepared(tuned_recipe('train.freeze=["encoder.*"]'), tmp_path / "same")
    assert not any("warning" in message for message in report.messages)


def test_rows_of_other_tokens_start_fresh_even_if_the_shape_is_the_same(
    tuned_recipe: RecipeWith, parent: Path, tmp_path: Path
) -> None:
    other = ["data.train.symbols=5", "data.dev.symbols=5", "train.start_vocabulary=none"]
    job, report = prepared(tuned_recipe(*other), tmp_path)
    assert job.parent is not None
    assert list(job.parent["fresh"]) == ["encoder.embedding.table.weight"]
    assert "learning the tokenizer" in report.messages
    same, _ = prepared(tuned_recipe("train.start_vocabulary=none", "data.train.seed=1"), tmp_path)
    assert same.parent is not None
    assert not same.parent["fresh"], "the same tokens were learned from the same text"


def test_optimizer_and_sampler_start_fresh(tuned_recipe: RecipeWith, tmp_path: Path) -> None:
    report = train_run(tuned_recipe("train.updates=6"), tmp_path / "new")
    assert report.intervals[0].step == 4
    assert report.intervals[0].rate == pytest.approx(0.01), "the warm-up begins again"


LABELS = {
    "data": {
        "train": {"kind": "labeled", "file": "train.tsv"},
        "dev": {"kind": "labeled", "file": "train.tsv"},
        "tokenizer": "words",
    },
    "task": "classification",
    "model": {"dim": 16, "encoder": {"depth": 1}, "head": "linear", "dropout": {"residual": 0.0}},
    "train": {"updates": 2, "validate_every": 2},
}


def test_labels_are_learned_anew_while_the_source_is_taken_along(tmp_path: Path) -> None:
    for name, labels in (("first", "xy"), ("second", "xyz")):
        (tmp_path / name).mkdir()
        text = "".join(f"{labels[n % len(labels)]}\ta b c {'def'[n % 3]}\n" for n in range(12))
        (tmp_path / name / "train.tsv").write_text(text, "utf-8")
    blocks = {"block": {"self": {"heads": 2}}}
    base = LABELS | {"model": LABELS["model"] | blocks}
    train_run(recipe_of(base, {"data": {"folder": str(tmp_path / "first")}}), tmp_path / "run")
    start_from = {"data": {"folder": str(tmp_path / "second")}, "train": {"start_from": str(tmp_path / "run")}}
    with pytest.raises(
        ConfigError, match=r'data\.train: has labels that .* does not know .*start_vocabulary = "source"'
    ):
        prepared(recipe_of(base, start_from), tmp_path)
    start_from["train"]["start_vocabulary"] = "source"
    job, _ = prepared(recipe_of(base, start_from), tmp_path)
    assert job.codecs.target.names == ("x", "y", "z")
    assert job.parent is not None
    assert set(job.parent["fresh"]) == {"head.out.weight", "head.out.bias"}


def test_classifier_starts_with_the_encoder_of_a_translator(parent: Path, tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("x\ta b\ny\tb a\n", "utf-8")
    block = {"self": {"heads": 2}, "feed_forward": {"inner": 32}}
    base = LABELS | {"model": LABELS["model"] | {"block": block}}
    changes = {"data": {"folder": str(tmp_path)}, "train": {"start_from": str(parent)}}
    with pytest.raises(ConfigError, match="was trained for the task 'translation', not 'classification'"):
        prepared(recipe_of(base, changes), tmp_path)
    changes["train"]["start_vocabulary"] = "source"
    job, _ = prepared(recipe_of(base, changes), tmp_path)
    assert job.parent is not None
    assert set(job.parent["fresh"]) == {"head.out.weight", "head.out.bias"}
    assert all(name.startswith("decoder.") for name in job.parent["unused"])


# ── what is refused ───────────────────────────────────────────────────────────────────────────────

REFUSED = {
    "another tokenizer": (
        ["data.tokenizer=bytes"],
        r"^data\.tokenizer: is .*'bytes'.*, but the vocabulary is taken from .*start_vocabulary = \"none\" to learn",
    ),
    "two tokenizers": (
        ["data.joint=false", "model.shared_embeddings=false"],
        r"^data\.joint: is False, but the vocabulary is taken from .*, where it is True",
    ),
    "shared embeddings of two vocabularies": (
        ["data.joint=false", "train.start_vocabulary=none"],
        r"^model\.shared_embeddings: needs one vocabulary",
    ),
    "only one of a joint vocabulary": (
        ["train.start_vocabulary=source"],
        r"^train\.start_vocabulary: \"source\" takes the tokenizer of one language, but data\.joint is true",
    ),
    "another width": (
        ["model.dim=8", *(f"model.{side}.block.feed_forward.inner=8" for side in ("encoder", "decoder"))],
        r"^train\.start_from: no tensor of .* fits this model: .* \(shape \[\d+, 8\], in the parent \[\d+, 16\]\), …",
    ),
    "a checkpoint that does not exist": (
        ["train.start_checkpoint=step-3"],
        r"^train\.start_from: .*no checkpoint 'step-3' \(available: .*\); choose one .* with train\.start_checkpoint$",
    ),
    "a file": (
        [f"train.start_from={__file__}"],
        r"^train\.start_from: .*\.py is a file; give the folder of a run, such as runs/demo",
    ),
    "no run": (
        ["train.start_from=/nowhere"],
        r"^train\.start_from: /nowhere: is not a run: it has no config\.toml",
    ),
    "only the checkpoint of a parent": (
        ["train.start_from=", "train.start_checkpoint=best"],
        r"^train\.start_checkpoint: has no effect without train\.start_from; set that too, or leave it out$",
    ),
    "only the vocabulary of a parent": (
        ["train.start_from=", "train.start_vocabulary=none"],
        r"^train\.start_vocabulary: has no effect without train\.start_from",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_start_that_does_not_fit_is_refused(name: str, tuned_recipe: RecipeWith, tmp_path: Path) -> None:
    flags, reason = REFUSED[name]
    with pytest.raises((ConfigError, RunError), match=reason):
        prepared(tuned_recipe(*flags), tmp_path)
    assert not (tmp_path / "new").exists()


def test_checkpoint_folder_in_place_of_a_run_is_refused_with_the_remedy(
    recipe_with: RecipeWith, parent: Path, tmp_path: Path
) -> None:
    recipe = recipe_with(f"train.start_from={checkpoint(parent, 18)}")
    with pytest.raises(ConfigError, match=r'is not a run; give the folder of the run and.*start_checkpoint = "step-N"'):
        prepared(recipe, tmp_path)


def test_two_vocabularies_are_refused_without_an_encoder(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a b c\nb c\n" * 6, "utf-8")
    (tmp_path / "b").write_text("x y\ny z w v\n" * 6, "utf-8")
    pairs = {"kind": "pairs", "src": "a", "tgt": "b"}
    block = {"self": {"heads": 2}, "cross": {"heads": 2}, "feed_forward": {"inner": 32}}
    base = {
        "data": {"folder": str(tmp_path), "train": pairs, "dev": pairs, "tokenizer": "words", "joint": False},
        "model": {"dim": 16, "shared_embeddings": False, "head": "linear", "decoder": {"depth": 1, "block": block}},
        "train": {"updates": 2, "validate_every": 2},
    }
    encoder = {"depth": 1, "block": {name: block[name] for name in ("self", "feed_forward")}}
    train_run(recipe_of(base, {"model": {"encoder": encoder}}), tmp_path / "run")
    del block["cross"]
    child = {"model": {"encoder": "none", "shared_embeddings": "auto"}, "train": {"start_from": str(tmp_path / "run")}}
    with pytest.raises(ConfigError, match=r"^model\.encoder: a model without an encoder reads both languages with one"):
        prepared(recipe_of(base, child), tmp_path)


def test_damaged_parent_is_refused(tuned_recipe: RecipeWith, parent: Path, tmp_path: Path) -> None:
    flip_bit(checkpoint(parent, 18) / "weights.safetensors")
    with pytest.raises(RunError, match=r"^train\.start_from: .*weights\.safetensors: checksum mismatch"):
        prepared(tuned_recipe("train.start_checkpoint=step-18"), tmp_path)


def test_wrong_data_is_reported_as_without_a_parent(tuned_recipe: RecipeWith, tmp_path: Path) -> None:
    wrong = ["data.train.longest=30", "data.train.shortest=25"]
    with pytest.raises(DataError) as without_parent:
        prepared(tuned_recipe(*wrong, "train.start_from="), tmp_path)
    with pytest.raises(DataError) as with_parent:
        prepared(tuned_recipe(*wrong), tmp_path)
    assert str(with_parent.value) == str(without_parent.value)


# ── resuming ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def flags(parent: Path) -> list[str]:
    return ["seed=5", "data.train.seed=8", f"train.start_from={parent}", 'train.freeze=["encoder.layers.*"]']


def test_resume_after_sigkill_is_bit_exact_and_needs_no_parent(
    flags: list[str], parent: Path, tmp_path: Path, job: Callable[..., Job], drive: Driver, contents: Contents
) -> None:
    undisturbed, early, late = (tmp_path / name for name in ("undisturbed", "early", "late"))
    assert drive(job(undisturbed, flags)) == [0], stderr_of(undisturbed)
    kills = [(early, ["update", 3]), (early, ["any", 5]), (late, ["update", 9])]
    assert drive(*[job(run, flags, at=at) for run, at in kills]) == [-signal.SIGKILL] * 3
    assert drive(job(early, flags)) == [0], stderr_of(early)
    assert "started from" in stderr_of(early)
    shutil.rmtree(parent)
    assert drive(job(late, flags)) == [0], stderr_of(late)
    assert "resuming from step 6" in stderr_of(late)
    assert contents(early) == contents(late) == contents(undisturbed)
    assert "parent.json" in contents(undisturbed)
    model = prepare_model(undisturbed)
    frozen = [name for name, _ in model.named_parameters() if name.startswith("encoder.layers")]
    optimized = load_file(checkpoint(undisturbed, 24) / "training.safetensors")
    assert frozen
    assert not [key for key in optimized if key.partition("/")[2] in frozen]


def prepare_model(run: Path) -> Model:
    folder = RunFolder(run)
    codecs = folder.codecs(folder.config())
    assert codecs is not None
    model = folder.model(folder.config(), codecs)
    load_weights(model, checkpoint(run, 24))
    return model


def test_run_without_a_checkpoint_still_needs_its_parent(
    tuned_recipe: RecipeWith, parent: Path, tmp_path: Path
) -> None:
    recipe = tuned_recipe()
    train_run(recipe, tmp_path / "new", until=3)
    shutil.rmtree(parent)
    with pytest.raises(RunError, match=r"^train\.start_from: .*is not a run"):
        train_run(recipe, tmp_path / "new")


def test_run_that_no_longer_starts_from_a_parent_does_not_name_it(
    tuned_recipe: RecipeWith, recipe: Recipe, tmp_path: Path
) -> None:
    train_run(tuned_recipe(), tmp_path / "new", until=3)
    assert RunFolder(tmp_path / "new").parent() is not None
    train_run(recipe, tmp_path / "new", until=3)
    assert RunFolder(tmp_path / "new").parent() is None


def test_parent_is_recorded(tuned_recipe: RecipeWith, parent: Path, tmp_path: Path) -> None:
    train_run(tuned_recipe("train.updates=6"), tmp_path / "new")
    facts = json.loads((tmp_path / "new" / "parent.json").read_text("utf-8"))
    assert (facts["run"], facts["checkpoint"], facts["step"]) == (str(parent), "average", 24)
    assert re.fullmatch("[0-9a-f]{64}", facts["sha256"])
    assert set(facts["adopted"]) == set(weights_of(parent, "auto"))
    assert f"Fine-tuned from {parent} (average)." in draw_report(tmp_path / "new", quick=True).read_text("utf-8")


@pytest.mark.parametrize("missing", ["run", "name", "checkpoint"])
def test_damaged_record_of_the_parent_is_refused(missing: str, tmp_path: Path) -> None:
    facts = {"run": "runs/general", "name": "general", "checkpoint": "step-2"}
    (tmp_path / "parent.json").write_text(json.dumps(facts), "utf-8")
    assert RunFolder(tmp_path).parent() == facts
    (tmp_path / "parent.json").write_text(json.dumps(facts | {missing: None}), "utf-8")
    with pytest.raises(RunError, match=r"parent\.json: is damaged: it names no run"):
        RunFolder(tmp_path).parent()
