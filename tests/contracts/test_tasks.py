"""Contracts of all tasks."""

import typing
from collections.abc import Callable

import pytest

from contracts.checks.tasks import CASE_CHECKS, TASK_CHECKS, TaskCase, cases, example_rows
from saccade.data.source_codecs import SOURCE_CODECS
from saccade.data.sources.rows import Row
from saccade.tasks import TASKS
from saccade.tasks.task import Task

CASES = {f"{kind}-{name}": case for kind, task in TASKS.items() for name, case in cases(task()).items()}


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("check", TASK_CHECKS, ids=lambda check: check.__name__)
def test_task(kind: str, check: Callable[[Task], None]) -> None:
    check(TASKS[kind]())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("check", CASE_CHECKS, ids=lambda check: check.__name__)
def test_task_with_rows_of_each_type(case: str, check: Callable[[TaskCase], None]) -> None:
    check(CASES[case])


def test_every_row_type_has_a_source_codec_and_examples() -> None:
    types = {*typing.get_args(Row)}
    assert {*SOURCE_CODECS} == types
    codecs = {*SOURCE_CODECS.values()}
    assert len({codec.file_name for codec in codecs}) == len(codecs)
    assert {type(row) for rows in example_rows().values() for row in rows} == types
