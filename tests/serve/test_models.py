"""`ServedModel`: a run used by several threads, and its lock."""

import threading
from pathlib import Path

import pytest

from saccade.api import Run
from saccade.decode.engine import Cancelled
from saccade.serve.models import ReadWriteLock, ServedModel

pytestmark = pytest.mark.usefixtures("without_shape_checks")

DATES = ["March 4, 2031", "Tuesday, March 4, 2031", "Apr 2, 1983"]


@pytest.fixture(scope="module")
def loaded(run: Path) -> Run:
    return Run(run)


@pytest.fixture(scope="module")
def model(loaded: Run) -> ServedModel:
    return ServedModel(loaded, "dates", "en", "de")


def always() -> bool:
    return True


def test_outputs_are_those_of_the_run(loaded: Run, model: ServedModel) -> None:
    assert [outputs[0].text for outputs in model.generate(DATES, 0, always)] == loaded.translate(DATES)


@pytest.mark.parametrize("alternatives", [0, 2, 8])
def test_beam_is_wide_enough_for_the_alternatives(model: ServedModel, alternatives: int) -> None:
    assert all(len(outputs) == alternatives + 1 for outputs in model.generate(DATES, alternatives, always))
    assert model.beam_width(alternatives) >= alternatives + 1


def test_search_stops_when_should_continue_is_false(model: ServedModel) -> None:
    steps = []

    def continue_twice() -> bool:
        steps.append(1)
        return len(steps) < 3

    with pytest.raises(Cancelled):
        model.generate(DATES, 0, continue_twice)
    assert len(steps) == 3


def test_model_has_a_token_limit_counts_tokens_and_gives_example_sentences(model: ServedModel) -> None:
    assert model.max_tokens >= 100
    assert model.count_tokens("") == 0
    assert model.count_tokens("March 4, 2031") > 1
    assert model.examples
    assert all(isinstance(example, str) for example in model.examples)


def test_links_and_attention_belong_to_the_sentence_pair(model: ServedModel) -> None:
    words = len(DATES[1].split()), len(["Dienstag,", "4.", "März", "2031"])
    links = model.alignment(DATES[1], "Dienstag, 4. März 2031")
    assert links is not None
    assert all(0 <= source < words[0] and 0 <= target < words[1] for source, target in links)
    data = model.attention(DATES[1], "Dienstag, 4. März 2031")
    assert [(sentence["source"], sentence["target"]) for sentence in data["sentences"]] == [
        (DATES[1], "Dienstag, 4. März 2031")
    ]


def test_concurrent_searches_and_captures_do_not_change_each_other(model: ServedModel) -> None:
    expected = model.generate(DATES, 0, always), model.attention(DATES[0], "4. März 2031")
    differing: list[str] = []

    def search() -> None:
        for _ in range(5):
            if model.generate(DATES, 0, always) != expected[0]:
                differing.append("search")

    def capture() -> None:
        for _ in range(5):
            if model.attention(DATES[0], "4. März 2031") != expected[1]:
                differing.append("attention")

    threads = [threading.Thread(target=work) for work in (search, capture, search, capture)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not differing


def test_exclusive_lock_waits_for_shared_holders_and_precedes_new_ones() -> None:
    lock, order = ReadWriteLock(), []
    entered, release = threading.Event(), threading.Event()

    def first() -> None:
        with lock.shared():
            entered.set()
            release.wait(30)
            order.append("first")

    def exclusive() -> None:
        with lock.exclusive():
            order.append("exclusive")

    def second() -> None:
        with lock.shared():
            order.append("second")

    threads = [threading.Thread(target=work) for work in (first, exclusive, second)]
    threads[0].start()
    entered.wait(30)
    threads[1].start()
    while not lock._exclusive_waiters:
        pass
    threads[2].start()
    release.set()
    for thread in threads:
        thread.join(30)
    assert order == ["first", "exclusive", "second"]
