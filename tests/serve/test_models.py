"""A run as the service uses it, from several threads."""

import threading
from pathlib import Path

import pytest

from saccade.api import Run
from saccade.decode.engine import Cancelled
from saccade.serve.models import ReadWriteLock, ServedModel

pytestmark = pytest.mark.usefixtures("unchecked")

DATES = ["March 4, 2031", "Tuesday, March 4, 2031", "Apr 2, 1983"]


@pytest.fixture(scope="module")
def loaded(run: Path) -> Run:
    return Run(run)


@pytest.fixture(scope="module")
def model(loaded: Run) -> ServedModel:
    return ServedModel(loaded, "dates", "en", "de")


def always() -> bool:
    return True


def test_it_finds_what_the_run_finds(loaded: Run, model: ServedModel) -> None:
    assert [outputs[0].text for outputs in model.generate(DATES, 0, always)] == loaded.translate(DATES)


@pytest.mark.parametrize("alternatives", [0, 2, 8])
def test_the_search_is_as_wide_as_the_alternatives_need(model: ServedModel, alternatives: int) -> None:
    assert all(len(outputs) == alternatives + 1 for outputs in model.generate(DATES, alternatives, always))
    assert model.width(alternatives) >= alternatives + 1


def test_a_search_that_nobody_waits_for_ends(model: ServedModel) -> None:
    steps = []

    def twice() -> bool:
        steps.append(1)
        return len(steps) < 3

    with pytest.raises(Cancelled):
        model.generate(DATES, 0, twice)
    assert len(steps) == 3


def test_it_knows_its_size_and_gives_examples(model: ServedModel) -> None:
    assert model.longest >= 100
    assert model.tokens("") == 0
    assert model.tokens("March 4, 2031") > 1
    assert model.examples
    assert all(isinstance(example, str) for example in model.examples)


def test_links_and_attention_are_of_the_pair(model: ServedModel) -> None:
    words = len(DATES[1].split()), len(["Dienstag,", "4.", "März", "2031"])
    links = model.links(DATES[1], "Dienstag, 4. März 2031")
    assert all(0 <= source < words[0] and 0 <= target < words[1] for source, target in links)
    shown = model.attention(DATES[1], "Dienstag, 4. März 2031")
    assert [(each["source"], each["target"]) for each in shown["sentences"]] == [(DATES[1], "Dienstag, 4. März 2031")]


def test_searches_and_listeners_do_not_disturb_each_other(model: ServedModel) -> None:
    calm = model.generate(DATES, 0, always), model.attention(DATES[0], "4. März 2031")
    wrong: list[str] = []

    def search() -> None:
        for _ in range(5):
            if model.generate(DATES, 0, always) != calm[0]:
                wrong.append("search")

    def look() -> None:
        for _ in range(5):
            if model.attention(DATES[0], "4. März 2031") != calm[1]:
                wrong.append("attention")

    threads = [threading.Thread(target=work) for work in (search, look, search, look)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_who_is_alone_waits_for_all_inside_and_lets_nobody_in_before() -> None:
    doors, seen = ReadWriteLock(), []
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with doors.shared():
            inside.set()
            leave.wait(30)
            seen.append("first")

    def listener() -> None:
        with doors.exclusive():
            seen.append("alone")

    def second() -> None:
        with doors.shared():
            seen.append("second")

    threads = [threading.Thread(target=work) for work in (first, listener, second)]
    threads[0].start()
    inside.wait(30)
    threads[1].start()
    while not doors._waiting:
        pass
    threads[2].start()
    leave.set()
    for thread in threads:
        thread.join(30)
    assert seen == ["first", "alone", "second"]
