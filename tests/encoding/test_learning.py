"""A tokenizer that is learned in another process is the one that is learned here."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from saccade.config import Slot
from saccade.data.tokenizers import TOKENIZERS
from saccade.encoding import learning
from saccade.encoding.child_process import ChildProcess
from saccade.encoding.learning import LearnedInProcess
from saccade.errors import DataError, RunError

TEXTS = ["", *(f"été {number} a b\u2028c\t d" for number in range(60)), " ", "a\rb"]


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[ChildProcess]:
    """Collects the processes that are started."""
    collected: list[ChildProcess] = []

    def started(module: str, does: str) -> ChildProcess:
        collected.append(ChildProcess(module, does))
        return collected[-1]

    monkeypatch.setattr(learning, "ChildProcess", started)
    return collected


def in_process(choice: dict[str, Any]) -> LearnedInProcess:
    return LearnedInProcess(Slot(TOKENIZERS).fill(choice)(), choice)


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("texts_per_message", [1, 7, 1000])
def test_learned_in_another_process_equals_learned_here(
    kind: str, texts_per_message: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "TEXTS_PER_MESSAGE", texts_per_message)
    choice = {"kind": kind} | ({} if kind == "bytes" else {"size": 40})
    here = Slot(TOKENIZERS).fill(choice)().learn(TEXTS)
    assert in_process(choice).learn(iter(TEXTS)).dump() == here.dump()


def test_options_reach_the_other_process() -> None:
    assert in_process({"kind": "words", "min_frequency": 2}).learn(["a b", "b c"]).vocabulary()[4:] == ["b"]


def test_text_that_is_too_small_is_reported_as_it_is_here() -> None:
    choice = {"kind": "sentencepiece"}
    with pytest.raises(DataError) as here:
        Slot(TOKENIZERS).fill(choice)().learn([])
    with pytest.raises(DataError) as there:
        in_process(choice).learn([])
    assert str(there.value) == str(here.value)


def test_process_that_was_killed_is_reported(children: list[ChildProcess], monkeypatch: pytest.MonkeyPatch) -> None:
    def texts() -> Iterator[str]:
        yield from TEXTS
        children[0]._process.kill()
        yield from TEXTS

    monkeypatch.setattr(learning, "TEXTS_PER_MESSAGE", 8)
    with pytest.raises(RunError, match=r"a process that learns the tokenizer ended with exit code -9; it was killed"):
        in_process({"kind": "words"}).learn(texts())


def test_error_while_reading_the_text_ends_the_process(children: list[ChildProcess]) -> None:
    def texts() -> Iterator[str]:
        yield "a"
        raise DataError("train.en:2: bad")

    with pytest.raises(DataError, match=r"train\.en:2: bad"):
        in_process({"kind": "words"}).learn(texts())
    assert children[0]._process.returncode is not None


def test_learning_process_does_not_import_torch() -> None:
    code = "import sys, saccade.encoding.learning_process; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
