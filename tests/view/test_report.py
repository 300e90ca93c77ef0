"""The report of a run: stored and computed scores, missing values, charts, escaping, and the page in a browser."""

from __future__ import annotations

import fcntl
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest

import saccade
from saccade.cli import main
from saccade.cli.report import draw_report
from saccade.data.sources import Pair
from saccade.data.tokenizers import CharacterKind
from saccade.decode.search_engine import SearchEngine
from saccade.errors import RunError
from saccade.runs.folder import RunFolder
from saccade.runs.history import read_history
from saccade.tasks.evaluation import ROWS_SHOWN, Evaluation
from saccade.tasks.translation import Translation
from saccade.training.progress import Silent
from saccade.view.charts import MAX_CURVE_POINTS, Curve, Scale, bar_chart, line_chart
from view.browser import BrowserPage

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><!-- &amp; 'q'"
WORDS = ["ant", "bee", "cat", "dog", "elk", "fox"]


@pytest.fixture(scope="module", autouse=True)
def without_shape_checks() -> Iterator[None]:
    """Disable jaxtyping; other tests check the shapes."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def write_pairs(folder: Path) -> None:
    """Pairs of equal sentences; the first of each split contains markup."""
    random = np.random.default_rng(0)
    for split, rows in (("train", 60), ("dev", 6), ("test", 12)):
        lines = [" ".join(random.choice(WORDS, size=random.integers(1, 6))) for _ in range(rows - 1)]
        for side in ("src", "tgt"):
            (folder / f"{split}.{side}").write_text("\n".join([HOSTILE, *lines]) + "\n", "utf-8")


def recipe(folder: Path, **changes: Any) -> dict[str, Any]:
    data = {name: {"kind": "pairs", "src": f"{name}.src", "tgt": f"{name}.tgt"} for name in ("train", "dev", "test")}
    small = {"self": {"heads": 2}, "cross": {"heads": 2}, "feed_forward": {"inner": 16}}
    return {
        "data": {"folder": str(folder), "tokenizer": "characters", "longest": 120, **data},
        "model": {"dim": 16, "encoder": {"depth": 1}, "decoder": {"depth": 1}, "block": small},
        "train": {"updates": 8, "batch_tokens": 512, "log_every": 2, "validate_every": 4, "best_by": "loss"},
        "decode": {"search": "greedy"},
    } | changes


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translation run after a few updates, in the folder of its data."""
    folder = tmp_path_factory.mktemp("report")
    write_pairs(folder)
    return saccade.train(recipe(folder), folder / "run", report=Silent()).folder.path


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def text_of(page: Path) -> str:
    """The text of the page, without tags."""
    body = page.read_text("utf-8").partition("<body")[2].partition('<script type="application/json"')[0]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", body))


# ── translation ──


def test_report_has_the_scores_of_evaluate(run: Path) -> None:
    page = draw_report(run, quick=False)
    assert page == run / "report.html"
    scores = saccade.load(run).evaluate()
    text = text_of(page)
    for key in ("bleu", "chrf", "bleu_lowercase"):
        low, high = scores["interval"][key]
        assert f"{scores[key]:.2f} {low:.2f} to {high:.2f} {scores['signatures'][key]}" in text
    assert "On the 12 rows of the test data" in text
    parameters = sum(parameter.numel() for parameter in saccade.load(run).model.parameters())
    assert f"{parameters:,} parameters" in text
    assert "8 of at most 8, epoch" in text
    assert "The report shows the checkpoint of update 8, the best one (loss" in text


def test_report_has_everything_the_run_stores(run: Path) -> None:
    page = draw_report(run, quick=True)
    text, source = text_of(page), page.read_text("utf-8")
    history = read_history(RunFolder(run))
    for step, loss in history.curve("loss").items():
        assert f'<th scope="row">{step}</th><td>{loss:.3f}</td>' in source
    for sample in history.validations[-1].samples:
        assert sample.source in json.dumps(embedded(source)["sentences"], ensure_ascii=False) or "<" in sample.source
    manifest = json.loads((run / "checkpoints" / "step-0000008" / "manifest.json").read_text())
    for key in ("saccade", "torch", "threads"):
        assert str(manifest[key]) in text
    assert "training this report" in text
    assert "Python not stored" in text
    config = source.partition("<pre><code>")[2].partition("</code></pre>")[0]
    assert config.count("\n") == (run / "config.toml").read_text().count("\n")
    for checksum in json.loads((run / "data.json").read_text())["sha256"].values():
        assert checksum in text


def embedded(source: str) -> dict[str, Any]:
    return json.loads(source.partition('id="data">')[2].partition("</script>")[0])


def test_a_second_report_reuses_the_stored_evaluation(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = draw_report(run, quick=False).read_bytes()
    assert (run / "evaluation.json").is_file()

    def fail(*_: object) -> None:
        raise RunError("decoded again")

    monkeypatch.setattr(SearchEngine, "generate", fail)
    assert draw_report(run, quick=False).read_bytes() == first
    assert draw_report(run, quick=True).read_bytes() == first
    assert "decoded again" in text_of(draw_report(run, checkpoint="step-4", quick=False))  # other weights
    (run / "evaluation.json").write_text('{"format": 2, "key": "x", "evaluation": {}}')
    assert "decoded again" in text_of(draw_report(run, quick=False))


def test_other_data_or_another_search_invalidates_the_stored_evaluation(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_report(run, quick=False)
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(config.replace('kind = "greedy"', 'kind = "beam"\nsize = 2'))
    assert "Not evaluated yet" in text_of(draw_report(run, quick=True))
    (run / "config.toml").write_text(config)
    checksums = json.loads((run / "data.json").read_text())
    checksums["sha256"]["data.test.src"] = "0" * 64
    (run / "data.json").write_text(json.dumps(checksums))
    assert "Not evaluated yet" in text_of(draw_report(run, quick=True))


def test_quick_does_not_evaluate_on_the_test_data(run: Path) -> None:
    text = text_of(draw_report(run, quick=True))
    assert not (run / "evaluation.json").exists()
    assert "Not evaluated yet" in text
    assert "On the development data, at the validation after update 8; without intervals." in text


def test_without_test_data_the_report_evaluates_on_the_development_data(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    tree = recipe(tmp_path)
    del tree["data"]["test"]
    run = saccade.train(tree, tmp_path / "run", report=Silent()).folder.path
    assert "On the 6 rows of the development data, because the recipe has no test data" in text_of(
        draw_report(run, quick=False)
    )


def test_missing_or_changed_test_data_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pairs(tmp_path)
    run = saccade.train(recipe(tmp_path), tmp_path / "run", report=Silent()).folder.path
    (tmp_path / "test.src").write_text("another text\n" * 12)
    assert main(["report", str(run)]) == 0
    assert "data.test.src: the file has changed since the run was trained" in capsys.readouterr().err
    assert "There are no scores on test data: data.test.src: the file has changed" in text_of(run / "report.html")
    (tmp_path / "test.src").unlink()
    assert "no such file" in text_of(draw_report(run, quick=False))


def test_a_model_without_attention_is_reported(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    decoder = {"kind": "recurrent", "cross": "at_start", "readout": "plain"}
    model = {"dim": 16, "encoder": {"kind": "recurrent", "bidirectional": False}, "decoder": decoder}
    run = saccade.train(recipe(tmp_path, model=model), tmp_path / "run", report=Silent()).folder.path
    assert "This model has no attention." in text_of(draw_report(run, quick=True))


# ── unfinished runs ──


def test_a_run_without_a_checkpoint_has_a_report(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    text = text_of(draw_report(run, quick=False))
    assert "There is no finished checkpoint yet, so there are no scores on test data and no attention." in text
    assert "validation after update 8" in text
    with pytest.raises(RunError, match="has no checkpoint yet"):
        draw_report(run, checkpoint="best", quick=False)


def test_a_run_without_any_results_has_a_report(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    shutil.rmtree(run / "codecs")
    for name in ("metrics.jsonl", "timing.jsonl"):
        (run / name).unlink()
    text = text_of(draw_report(run, quick=False))
    assert text.count("No values yet.") == 4
    assert "No validation has finished yet." in text
    assert "number of parameters not known yet" in text


def test_incomplete_and_damaged_log_lines_are_left_out(run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write('not json\n{"step": "x"}\n[]\n{"step": 10, "loss": NaN, "rate": 1e400}\n{"step": 12, "loss": 1')
    with (run / "timing.jsonl").open("a") as file:
        file.write('{"step": 8, "seconds": 99.0, "source_tokens_per_second": 7.5}\n')
    history = read_history(RunFolder(run))
    assert sorted(history.curve("loss")) == [2, 4, 6, 8]
    assert history.curve("source_tokens_per_second")[8] == 7.5  # the line of the resumed run
    assert history.unreadable_lines == 3
    assert "3 damaged lines of metrics.jsonl or timing.jsonl are left out" in text_of(draw_report(run, quick=True))


def test_a_run_in_training_is_marked_as_such(run: Path) -> None:
    assert "was being trained" not in text_of(draw_report(run, quick=True))
    with (run / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "This run was being trained when this report was written" in text_of(draw_report(run, quick=True))


def test_a_damaged_checkpoint_is_an_error_that_names_the_file(run: Path) -> None:
    weights = run / "checkpoints" / "step-0000008" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(RunError, match=r"weights.safetensors: checksum mismatch"):
        draw_report(run, checkpoint="step-8", quick=True)


# ── labels ──


@pytest.fixture(scope="module")
def labeling_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tagging run on words and a classification run on texts."""
    folder = tmp_path_factory.mktemp("labels")
    for split in ("train", "dev", "test"):
        sentences = [WORDS[i % 4 : i % 4 + 2 + i % 2] for i in range(12)]
        columns = "\n\n".join("\n".join(f"{word}\t{word[0].upper()}<b>" for word in words) for words in sentences)
        (folder / f"{split}.conll").write_text(columns + "\n")
        (folder / f"{split}.txt").write_text(
            "".join(f"{'long' if len(words) > 2 else 'short'} {' '.join(words)}\n" for words in sentences)
        )
    sources = {
        "tagging": {"kind": "columns", "file": "{}.conll", "word": 0, "label": 1},
        "classification": {"kind": "labeled", "file": "{}.txt"},
    }
    runs = {}
    for task, source in sources.items():
        splits = {name: source | {"file": source["file"].format(name)} for name in ("train", "dev", "test")}
        tree = recipe(folder, task=task, model={"dim": 16, "head": "linear", "encoder": {"kind": "recurrent"}})
        tree["data"] = {"folder": str(folder), "tokenizer": "words", "longest": 20, **splits}
        runs[task] = saccade.train(tree, folder / task, report=Silent()).folder.path
    return runs


@pytest.mark.parametrize("task", ["tagging", "classification"])
def test_label_scores_and_confusion_matrix_are_those_of_evaluate(labeling_runs: dict[str, Path], task: str) -> None:
    page = draw_report(labeling_runs[task], quick=False)
    scores, text = saccade.load(labeling_runs[task]).evaluate(), text_of(page)
    assert f"Accuracy, % {scores['accuracy']:.2f}" in text
    assert f"Macro F1, % {scores['macro_f1']:.2f}" in text
    for label in scores["per_label"].values():
        assert f"{label['precision']:.1f} {label['recall']:.1f} {label['f1']:.1f} {label['count']}" in text
    matrix = re.search(r'<table class="confusion">.*?</table>', page.read_text("utf-8"), re.DOTALL)
    assert matrix
    cells = [int(cell) if cell != "·" else 0 for cell in re.findall(r'<td class="h\d">([^<]*)</td>', matrix.group())]
    assert cells == [count for row in scores["confusion"] for count in row]
    assert "Attention can be shown for translation runs only" in text
    assert "accuracy by source length in" in text


def test_intervals_of_label_scores_contain_the_score(labeling_runs: dict[str, Path]) -> None:
    draw_report(labeling_runs["tagging"], quick=False)
    stored = json.loads((labeling_runs["tagging"] / "evaluation.json").read_text())["evaluation"]
    assert stored["scores"]
    for score in stored["scores"]:
        low, high = score["interval"]
        assert low <= score["value"] <= high


# ── best and worst rows, length ──


def evaluate(outputs: list[str], references: list[str], sources: list[str] | None = None) -> Evaluation:
    rows = [Pair(s, r, "") for s, r in zip(sources or references, references, strict=True)]
    return Translation().evaluate_outputs("test", rows, outputs, CharacterKind().learn(references))


def test_best_and_worst_rows_are_sorted_and_disjoint() -> None:
    references = [letter * (number + 4) for number, letter in enumerate("abcdefghijklmnopqrst")]
    outputs = [text if i % 2 else "zzzz" for i, text in enumerate(references)]
    evaluation = evaluate(outputs, references)
    assert [row.reference for row in evaluation.best] == references[1::2][::-1][:ROWS_SHOWN]
    assert [row.reference for row in evaluation.worst] == references[::2][::-1][:ROWS_SHOWN]
    assert evaluate(references, references).worst == ()
    (only,) = evaluate(["zzzz"], ["aaaa"]).best
    assert (only.output, only.length) == ("zzzz", 4)


def test_each_row_is_in_one_length_bucket() -> None:
    sources = ["x" * length for length in [*range(1, 31), 200]]
    buckets = evaluate(["same text"] * 31, ["same text"] * 31, sources).lengths
    assert sum(bucket.count for bucket in buckets) == 31
    assert buckets[0].first == 1
    assert buckets[-1].last is None
    assert all(bucket.scores["chrF"] == pytest.approx(100) for bucket in buckets)
    assert [str(bucket) for bucket in buckets][:2] == ["1–5", "6–10"]


# ── charts ──


def test_a_line_chart_has_a_value_table_and_a_description() -> None:
    chart = line_chart("Loss <x>", [Curve("a&b", {10: 3.0, 20: 1.5}), Curve("none", {})], lambda value: f"{value:.1f}")
    assert '<tr><th scope="row">20</th><td>1.5</td></tr>' in chart
    assert "<title id=" in chart
    assert "a&amp;b: 3.0 at update 10, 1.5 at update 20, lowest 1.5, highest 3.0." in chart
    assert "<x>" not in chart
    assert "none" not in chart


def test_a_long_curve_is_thinned_out_but_keeps_its_last_value() -> None:
    chart = line_chart("Loss", [Curve("a", {step: float(step) for step in range(1, 10 * MAX_CURVE_POINTS)})], str)
    rows = re.findall(r'<th scope="row">([\d,]+)</th>', chart)
    assert len(rows) <= MAX_CURVE_POINTS + 1
    assert rows[-1] == f"{10 * MAX_CURVE_POINTS - 1:,}"
    assert "<summary>Values (one in 10, and the last)</summary>" in chart


@pytest.mark.parametrize(("low", "high"), [(0, 7.3), (5, 5), (0, 0), (-2, 1e-6), (1e-5, 9e-4), (0, 123_456)])
def test_a_scale_contains_its_values_and_has_distinct_ticks(low: float, high: float) -> None:
    scale = Scale.with_round_ends(low, high, 200, 10)
    assert scale.low <= low + 1e-12
    assert scale.high >= high - 1e-12
    assert 10 <= scale(high) <= scale(low) <= 200
    assert len({scale.tick_format()(tick) for tick in scale.ticks}) == len(scale.ticks) >= 2


def test_a_bar_chart_shows_row_counts_and_marks_small_groups() -> None:
    chart = bar_chart("chrF by length", "length", ["1–5", "6+"], [3, 40], {"chrF": [50.0, 120.0]})
    assert chart.count('class="bar s1 few"') == 1
    assert '<tr><th scope="row">1–5</th><td>3</td><td>50.0</td></tr>' in chart
    assert not re.search(r'height="-', chart)


# ── from the command line ──


def test_training_writes_a_report_and_survives_its_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pairs(tmp_path)
    run = saccade.train(recipe(tmp_path), tmp_path / "run", report=Silent()).folder.path
    command = ["train", str(run / "config.toml"), "--run", str(tmp_path / "again")]
    assert main(command) == 0
    assert f"wrote {tmp_path / 'again' / 'report.html'}" in capsys.readouterr().err
    assert "Not evaluated yet" in text_of(tmp_path / "again" / "report.html")

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("planted failure")

    monkeypatch.setattr("saccade.cli.train.draw_report", fail)
    assert main(command) == 0
    assert "warning: the report could not be written: planted failure" in capsys.readouterr().err.splitlines()


def test_the_command_in_the_report_reproduces_the_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = draw_report(run, quick=True).read_text("utf-8")
    (command,) = re.findall(r"<pre><code>(OMP_NUM_THREADS=\d+ saccade train [^<]*)</code></pre>", source)
    _, program, *arguments = shlex.split(command)
    assert program == "saccade"
    assert main(arguments) == 0
    new_run = Path(arguments[-1])
    name = "checkpoints/step-0000008/weights.safetensors"
    assert (new_run / name).read_bytes() == (run / name).read_bytes()


def test_report_can_be_written_from_inside_the_run_folder(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run)
    source = draw_report(Path(), quick=True).read_text("utf-8")
    assert '<h1 dir="auto">run</h1>' in source
    assert "saccade train config.toml --run ../run-again</code>" in source


def test_output_option_sets_the_path(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new" / "page.html"
    assert main(["report", str(run), "--quick", "-o", str(target)]) == 0
    assert target.is_file()
    assert not (run / "report.html").exists()
    assert [path.name for path in target.parent.iterdir()] == ["page.html"]
    assert main(["report", str(tmp_path)]) == 2
    assert "is not a run" in capsys.readouterr().err


# ── escaping, and the page in a browser ──


def test_markup_in_sentences_is_escaped(run: Path) -> None:
    source = draw_report(run, quick=False).read_text("utf-8")
    assert "<img" not in source
    assert "<!--" not in source
    assert source.count("<script") == source.count("</script>") == 2
    assert not re.search(
        r"https?:|//[a-z]|<[a-z][^>]*\ssrc=|@import|url\(|<link|fetch\(|XMLHttp|import\(",
        re.sub("http://www.w3.org/2000/svg", "", source),
    )
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', source)
    assert policy
    assert policy.group(1).startswith("default-src 'none';")
    assert "unsafe" not in policy.group(1)
    assert 'style="' not in source


@pytest.fixture(scope="module")
def page(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_report(trained, tmp_path_factory.mktemp("page") / "report.html", quick=False)


def test_browser_shows_markup_in_sentences_as_text(browser: Any, page: Path) -> None:
    visit = BrowserPage(browser, page.as_uri())
    assert visit.page.locator("img").count() == 0
    assert visit.page.title() == "run: report"
    assert HOSTILE.split()[0] in visit.page.locator("main").inner_text()
    assert visit.page.locator(".attention .heat-map").count() == 1
    visit.close()


def test_pointing_at_a_curve_shows_its_values(browser: Any, page: Path, trained: Path) -> None:
    history = read_history(RunFolder(trained))
    visit = BrowserPage(browser, page.as_uri())
    chart = visit.page.locator(".chart").first
    chart.scroll_into_view_if_needed()
    box = chart.locator("svg").bounding_box()
    visit.page.mouse.move(box["x"] + box["width"] - 12, box["y"] + 20)
    tooltip = chart.locator(".tooltip")
    assert tooltip.inner_text().split() == [
        *("update", "8"),
        *("training", f"{history.curve('loss')[8]:.3f}"),
        *("validation", f"{history.validation_curve('loss')[8]:.3f}"),
    ]
    assert chart.locator(".guide circle").count() == 2
    visit.page.mouse.move(5, 5)
    assert tooltip.inner_text() == ""
    visit.close()


@pytest.mark.parametrize("settings", [{}, {"color_scheme": "dark"}, {"viewport": {"width": 360, "height": 740}}])
def test_page_fits_the_screen_and_has_no_accessibility_violations(
    browser: Any, page: Path, settings: dict[str, Any]
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe did not run: it is not installed")
    visit = BrowserPage(browser, page.as_uri(), **settings)
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for summary in visit.page.locator("summary").all():
        summary.click()
    violations = axe.Axe().run(visit.page).response["violations"]
    assert [(found["id"], found["impact"], len(found["nodes"])) for found in violations] == []
    visit.close()


def test_browser_shows_the_confusion_matrix_of_labels(
    browser: Any, labeling_runs: dict[str, Path], tmp_path: Path
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe did not run: it is not installed")
    visit = BrowserPage(browser, draw_report(labeling_runs["tagging"], tmp_path / "page.html", quick=False).as_uri())
    assert visit.page.locator(".confusion tbody tr").count() == len(WORDS)
    assert "A<b>" in visit.page.locator(".confusion").inner_text()
    violations = axe.Axe().run(visit.page).response["violations"]
    assert [(found["id"], found["impact"], len(found["nodes"])) for found in violations] == []
    visit.close()
