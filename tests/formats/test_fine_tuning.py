"""An imported Marian model is fine-tuned on other text, and the result can be evaluated and exported."""

import json
from pathlib import Path

import pytest

from formats.small import SOURCES, TARGETS, outputs_of
from formats.test_marian import CONFIGS, hf_folder
from saccade import api
from saccade.api import Run
from saccade.cli import main
from saccade.data.tokenizers import PAD, START
from saccade.recipe import read_recipe
from saccade.runs.weights import named_tensors
from saccade.training.loop import train
from training.helpers import Recorder

RECIPE = """
extends = "imported/config.toml"
data.train = { kind = "pairs", src = "own.de", tgt = "own.en" }
data.dev = { kind = "pairs", src = "own.de", tgt = "own.en" }
train.start_from = "imported"
"""
FASTER = ["train.updates=30", 'train.schedule={kind="constant", rate=0.01}']

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with text and the recipe of the documentation, in which commands run."""
    monkeypatch.chdir(tmp_path)
    pairs = [(s, t) for s, t in zip(SOURCES[:4], TARGETS, strict=False) if s and t]
    for side, language in enumerate(("de", "en")):
        (tmp_path / f"own.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs), "utf-8")
    (tmp_path / "own.toml").write_text(RECIPE, "utf-8")
    return tmp_path


def chrf(run: str, capsys: pytest.CaptureFixture[str]) -> float:
    assert main(["evaluate", run, "--src", "own.de", "--ref", "own.en", "--json"]) == 0
    return json.loads(capsys.readouterr().out)["chrf"]


def output_ids(run: Run) -> list[list[int]]:
    return [outputs[0].ids for outputs in outputs_of(run.engine, run.recipe.decode)]


@pytest.mark.parametrize("name", ["like OPUS-MT", pytest.param("no tied weights", marks=pytest.mark.slow)])
def test_imported_model_is_fine_tuned_evaluated_and_exported(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hf_folder(folder / "hf", CONFIGS[name])
    assert main(["import", "hf", "hf", "-o", "imported"]) == 0
    capsys.readouterr()
    report = Recorder()
    train(read_recipe("own.toml", FASTER).config, folder / "tuned", report)
    imported, tuned = api.load("imported"), api.load("tuned")

    count = len(named_tensors(imported.model)[0])
    assert f"started from imported (step-0000000): adopted {count} of {count} tensors, " in "\n".join(report.messages)
    assert tuned.codecs.source.dump() == imported.codecs.source.dump()
    assert chrf("tuned", capsys) > chrf("imported", capsys)
    assert not {START, PAD} & {token for ids in output_ids(tuned) for token in ids}

    assert main(["export", "tuned", "--to", "hf", "-o", "exported"]) == 0
    assert "fine-tuned from imported (step-0000000)" in Path("exported/README.md").read_text("utf-8")
    assert main(["import", "hf", "exported", "-o", "again"]) == 0
    assert output_ids(api.load("again")) == output_ids(tuned)
