"""The command line keeps its manners: exit codes, streams, words instead of tracebacks, n lines in and n lines out."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
PROGRAM = [sys.executable, "-m", "saccade"]


# ── answers that do not wait for torch ────────────────────────────────────────────────────────────

WITHOUT_TORCH = {
    "--help": (["--help"], 0, "Commands"),
    "--version": (["--version"], 0, "saccade "),
    "train --help": (["train", "--help"], 0, "--dry-run"),
    "translate --help": (["translate", "--help"], 0, "--length-penalty"),
    "evaluate --help": (["evaluate", "--help"], 0, "--hyp"),
    "view --help": (["view", "--help"], 0, "--output"),
    "demo --help": (["demo", "--help"], 0, "--from"),
    "config show --help": (["config", "show", "--help"], 0, "--set"),
    "data check --help": (["data", "check", "--help"], 0, "--set"),
    "an unknown command": (["trian", "r.toml"], 2, "train"),
    "an unknown command of a group": (["config", "shwo", "r.toml"], 2, "show"),
    "an unknown option": (["train", "r.toml", "--dry-rum"], 2, "--dry-run"),
    "a missing argument": (["train"], 2, "RECIPE"),
    "a word for a number": (["translate", "r", "--beam", "wide"], 2, "wide"),
    "a missing file": (["translate", "r", "no/such/file"], 2, "no/such/file: no such file"),
    "evaluate with nothing": (["evaluate"], 2, "either a RUN, or --hyp FILE and --ref FILE"),
    "evaluate with too much": (["evaluate", "r", "--hyp", "h", "--ref", "f"], 2, "either a RUN"),
    "evaluate with half": (["evaluate", "r", "--src", "s"], 2, "go together"),
    "evaluate with a missing file": (["evaluate", "--hyp", "nope", "--ref", "nope"], 2, "nope: no such file"),
    "sampling without --sample": (["translate", "r", "--top-k", "3"], 2, "--top-k needs --sample"),
    "a sampled beam": (["translate", "r", "--sample", "--beam", "3"], 2, "--sample draws one output per line"),
    "several lines for one": (["translate", "r", "--best", "3"], 2, "add --json"),
    "two kinds of prefix": (
        ["translate", "r", "--prefix", "a", "--prefixes", "f"],
        2,
        "--prefix and --prefixes cannot be combined",
    ),
    "a missing recipe": (["train", "nope.toml"], 2, "nope.toml: no such recipe or preset"),
    "a flag without a value": (["train", "demo", "--set", "train.updates"], 2, "expected KEY=VALUE"),
    "a folder that is no run": (["translate", "nowhere"], 2, "nowhere: is not a run"),
    "view without a sentence": (["view", "r"], 2, "view needs a sentence"),
    "align --help": (["align", "--help"], 0, "--symmetrise"),
    "align with half": (["align", "r", "--src", "f"], 2, "--tgt"),
    "align of a missing file": (["align", "score", "--gold", "nope", "--system", "nope"], 2, "nope: no such file"),
    "report --help": (["report", "--help"], 0, "--quick"),
    "serve --help": (["serve", "--help"], 0, "--port"),
    "serve without a run": (["serve"], 2, "saccade serve RUN"),
    "serve of what is no run": (["serve", "nowhere"], 2, "nowhere: is not a run"),
    "view of a missing file": (["view", "r", "--file", "nope"], 2, "nope: no such file"),
    "view of two with one target": (["view", "r", "a", "b", "--target", "c"], 2, "--target needs exactly one sentence"),
}

ASK_ALL = """
import contextlib, io, json, sys
from saccade.cli import main

said = []
for command in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(command)
    said.append([code, out.getvalue(), err.getvalue(), "torch" in sys.modules])
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str, bool]]:
    commands = json.dumps([command for command, _, _ in WITHOUT_TORCH.values()])
    done = subprocess.run(
        [sys.executable, "-c", ASK_ALL, commands],
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, "COLUMNS": "100"},
        cwd=tmp_path_factory.mktemp("nowhere"),
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(WITHOUT_TORCH, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("case", WITHOUT_TORCH)
def test_it_answers_without_torch(case: str, answers: dict[str, tuple[int, str, str, bool]]):
    code, out, err, torch = answers[case]
    _, expected, words = WITHOUT_TORCH[case]
    assert code == expected
    assert not torch
    assert words in (err if expected else out)
    assert (out if expected else err) == ""
    assert "Traceback" not in err
    assert "\x1b" not in out + err
    if expected:
        assert err.startswith("saccade: ")


def test_a_near_miss_is_answered_with_the_right_word(answers: dict[str, tuple[int, str, str, bool]]):
    for case in ("an unknown command", "an unknown command of a group", "an unknown option"):
        assert "did you mean" in answers[case][2].lower(), case


def test_the_version_names_torch_and_python(answers: dict[str, tuple[int, str, str, bool]]):
    version = r"saccade \d+\.\d+\.\d+\S* \(torch \d+\.\d+\S*, Python \d+\.\d+\.\d+\)\n"
    assert re.fullmatch(version, answers["--version"][1])


@pytest.mark.parametrize("command", [["--help"], ["--version"], ["trian"]])
def test_the_module_and_the_script_are_one_program(command: list[str]):
    script = Path(sys.executable).with_name("saccade")
    if not script.exists():
        pytest.skip("the package is not installed")
    both = [
        subprocess.run([*program, *command], capture_output=True, text=True, env=ENVIRONMENT)
        for program in (PROGRAM, [str(script)])
    ]
    assert both[0].returncode == both[1].returncode == (2 if command == ["trian"] else 0)
    assert (both[0].stdout, both[0].stderr) == (both[1].stdout, both[1].stderr)


@pytest.mark.parametrize("command", [["--help"], ["train", "--hlep"]])
def test_help_and_typos_do_not_import_torch(command: list[str]):
    script = "import sys; from saccade.cli import main; main(sys.argv[1:]); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script, *command], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


# ── config ────────────────────────────────────────────────────────────────────────────────────────


def shown(text: str) -> dict[str, tuple[str, str]]:
    """Key → (value, where it comes from)."""
    found = re.findall(r"^(\S+) = (.*?)\s+# (.*)$", text, re.MULTILINE)
    return {key: (value, origin) for key, value, origin in found}


def test_config_show_says_where_each_value_comes_from(call: Call, tmp_path: Path):
    base, recipe = tmp_path / "base.toml", tmp_path / "mine.toml"
    base.write_text('extends = "transformer-tiny"\n[train]\nkeep = 7\nclip = 0.5\n', "utf-8")
    recipe.write_text(
        'extends = "base.toml"\n[train]\nkeep = 8\n[data]\ntrain = { kind = "copy" }\ndev = "copy"\n', "utf-8"
    )
    said = call("config", "show", recipe, "--set", "train.updates=9", "--set=model.encoder.depth=2")
    assert (said.code, said.err) == (0, "")
    values = shown(said.out)
    assert values["train.keep"] == ("8", str(recipe))
    assert values["train.clip"] == ("0.5", str(base))
    assert values["train.updates"] == ("9", "--set train.updates")
    assert values["model.encoder.depth"] == ("2", "--set model.encoder.depth")
    assert values["model.decoder.depth"] == ("4", "preset transformer-tiny")
    assert values["model.encoder.block.self.heads"] == ("4", "preset transformer-tiny")
    assert values["train.patience"] == ("0", "default")
    assert values["data.dev.kind"] == ('"copy"', str(recipe))
    assert values["data.train.rows"] == ("1000", "default")
    assert len(values) == len(said.out.splitlines()) > 60


def test_config_show_as_json(call: Call, recipe: Path):
    said = call("config", "show", recipe, "--json", "--set", "seed=5")
    values = json.loads(said.out)
    assert values["seed"] == {"value": 5, "from": "--set seed"}
    assert values["model.dim"] == {"value": 32, "from": str(recipe)}
    assert values["train.patience"] == {"value": 0, "from": "default"}


def test_an_option_of_validation_leaves_its_search_alone(call: Call, tmp_path: Path):
    flags = ["--set", "train.validation.ratio=3.0"]
    before, after = (shown(call("config", "show", "transformer-tiny", *more).out) for more in ([], flags))
    assert before["train.validation.search.kind"] == after["train.validation.search.kind"] == ('"greedy"', "default")


@pytest.mark.parametrize(
    ("name", "depth", "dim", "heads", "inner"),
    [
        ("transformer-tiny", 4, 128, 4, 256),
        ("transformer-small", 3, 256, 4, 1024),
        ("transformer-base", 6, 512, 8, 2048),
        ("transformer-big", 6, 1024, 16, 4096),
    ],
)
def test_presets_are_what_they_are_called(call: Call, name: str, depth: int, dim: int, heads: int, inner: int):
    said = call("config", "show", name, "--set", "data.train=copy", "--set", "data.dev=copy", "--json")
    values = {key: fact["value"] for key, fact in json.loads(said.out).items()}
    assert values["model.dim"] == dim
    for side in ("encoder", "decoder"):
        assert values[f"model.{side}.depth"] == depth
        assert values[f"model.{side}.block.self.heads"] == heads
        assert values[f"model.{side}.block.feed_forward.inner"] == inner


BAD_CONFIG = {
    "an unknown table": ("trian.updates=3", "trian: unknown key; did you mean 'train'?"),
    "an unknown key": ("train.updats=3", "train.updats: unknown key; did you mean 'updates'?"),
    "an unknown key far down": (
        "model.encoder.block.self.haeds=2",
        "model.encoder.block.self.haeds: unknown key of 'multi_head'; did you mean 'heads'?",
    ),
    "an unknown key of a block for both": ("model.block.nrom=layer", "model.encoder.block.nrom: unknown key"),
    "a key like no other": ("train.zzz=1", "train.zzz: unknown key (known: average, "),
    "an unknown kind": (
        "train.schedule=inverse_rot",
        "train.schedule: unknown kind 'inverse_rot'; did you mean 'inverse_root'?",
    ),
    "an unknown kind of data": ("data.train.kind=pears", "data.train: unknown kind 'pears'; did you mean 'pairs'?"),
    "an option of another kind": ("data.train.src=a", "data.train.src: unknown key of 'sort'"),
    "text for a number": ("train.updates=many", "train.updates: expected a whole number, got 'many'"),
    "half for a whole": ("train.updates=1.5", "train.updates: expected a whole number, got 1.5"),
    "a number for a switch": ("data.skip_bad=1", "data.skip_bad: expected true or false, got 1"),
    "a number for text": ("data.folder=3", "data.folder: expected text in quotes, got 3"),
    "too little": ("model.dim=0", "model.dim: expected greater than or equal to 1, got 0"),
    "too much": ("model.dropout.residual=1.0", "model.dropout.residual: expected less than 1, got 1.0"),
    "no number": ("train.clip=nan", "train.clip: expected a finite number, got nan"),
    "one of few": ("train.best_by=belu", "train.best_by: expected 'auto', 'loss', 'bleu'"),
    "an array for a table": ("train=[1]", "train: expected a table"),
}


@pytest.mark.parametrize("case", BAD_CONFIG)
def test_a_config_stops_before_any_work_with_its_key_when_it_has(case: str, call: Call, recipe: Path, tmp_path: Path):
    flag, words = BAD_CONFIG[case]
    for command in (["config", "show", recipe], ["train", recipe, "--run", tmp_path / "run"]):
        said = call(*command, "--set", flag)
        assert (said.code, said.out) == (1, "")
        assert said.err.startswith("saccade: ")
        assert words in said.err
        assert "Traceback" not in said.err
    assert not (tmp_path / "run").exists()


def test_several_mistakes_are_told_at_once(call: Call, recipe: Path):
    flags = ["train.updats=3", "model.dim=x", "model.dropout.residual=2.0"]
    said = call("config", "show", recipe, *[part for flag in flags for part in ("--set", flag)])
    for key in ("train.updats", "model.dim", "model.dropout.residual"):
        assert f"{key}: " in said.err


def test_a_recipe_without_text_says_what_is_missing(call: Call, tmp_path: Path):
    assert call("config", "show", "transformer-tiny").code == 0
    said = call("train", "transformer-tiny", "--run", tmp_path / "run")
    assert said.code == 1
    assert "data.train: there is no text; name some" in said.err


IMPOSSIBLE = {
    "heads that do not divide the width": (
        "model.decoder.block.cross.heads=3",
        "model.decoder.block.cross: heads = 3 does not divide the width 32",
    ),
    "heads of both sides that do not": ("model.block.self.heads=3", "model.encoder.block.self: heads = 3 does not"),
    "one embedding for two vocabularies": ("data.joint=false", "model.shared_embeddings: needs one vocabulary"),
    "more outputs than the beam has": (
        'decode.search={kind="beam", size=2, best=4}',
        "decode.search: best = 4 outputs cannot come out of a beam of size = 2",
    ),
    "such a beam in validation": (
        'train.validation.search={kind="beam", size=2, best=4}',
        "train.validation.search: best = 4 outputs cannot come out of a beam of size = 2",
    ),
    "a share above one": ('decode.search={kind="sample", top_p=1.5}', "decode.search: top_p is a probability"),
    "batches that hold no sentence": ("train.batch_tokens=20", "train.batch_tokens: 20 cannot hold a sentence"),
    "no rows": ("data.train.rows=0", "data.train.rows: must be at least 1"),
    "an unknown split": ("data.dev.split=dve", "data.dev.split: unknown split 'dve'"),
    "a column before the first": ('data.train={kind="tsv", file="f", src=-1}', "data.train.src: columns count from 0"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_a_config_stops_before_any_work_when_it_asks_for(case: str, call: Call, recipe: Path, tmp_path: Path):
    flag, words = IMPOSSIBLE[case]
    for command in (["config", "show", recipe], ["train", recipe, "--run", tmp_path / "run"]):
        said = call(*command, "--set", flag)
        assert (said.code, said.out) == (1, "")
        assert words in said.err
        assert "Traceback" not in said.err
    assert not (tmp_path / "run").exists()


def test_extended_recipes_are_found_beside_the_one_that_extends_them(call: Call, tmp_path: Path, recipe: Path):
    (tmp_path / "inner").mkdir()
    shutil.copy(recipe, tmp_path / "inner" / "a.toml")
    (tmp_path / "inner" / "b.toml").write_text('extends = "a.toml"\nseed = 2\n[train]\nkeep = 3\n', "utf-8")
    (tmp_path / "c.toml").write_text('extends = ["inner/b.toml"]\nseed = 4\n', "utf-8")
    values = shown(call("config", "show", tmp_path / "c.toml").out)
    assert values["seed"] == ("4", str(tmp_path / "c.toml"))
    assert values["train.keep"] == ("3", str(tmp_path / "inner" / "b.toml"))
    assert values["train.updates"] == ("60", str(tmp_path / "inner" / "a.toml"))


def test_later_of_several_extended_recipes_win(call: Call, tmp_path: Path, recipe: Path):
    for number in (1, 2):
        (tmp_path / f"{number}.toml").write_text(f'extends = "{recipe}"\n[train]\nkeep = {number}\n', "utf-8")
    (tmp_path / "both.toml").write_text('extends = ["1.toml", "2.toml"]\n', "utf-8")
    assert shown(call("config", "show", tmp_path / "both.toml").out)["train.keep"][0] == "2"


def test_a_recipe_that_extends_itself_is_named(call: Call, tmp_path: Path):
    for one, other in (("a", "b"), ("b", "c"), ("c", "a")):
        (tmp_path / f"{one}.toml").write_text(f'extends = "{other}.toml"\n', "utf-8")
    said = call("config", "show", tmp_path / "a.toml")
    assert said.code == 2
    assert f"{tmp_path / 'a.toml'}: extends itself, through " in said.err
    assert "c.toml" in said.err


def test_a_recipe_that_extends_itself_by_another_name_is_named(call: Call, tmp_path: Path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.toml").write_text('extends = "../d/a.toml"\n', "utf-8")
    assert "extends itself" in call("config", "show", tmp_path / "d" / "a.toml").err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('extends = "transformer-tny"\n', "no such recipe or preset; did you mean 'transformer-tiny'?"),
        ("extends = 3\n", "extends: expected a name or an array of names, got 3"),
        ("seed = \n", "not valid TOML"),
        ("seed = 1\nseed = 2\n", "not valid TOML"),
        ("\0", "not valid TOML"),
    ],
)
def test_a_recipe_is_refused_in_words_that_says(text: str, words: str, call: Call, tmp_path: Path):
    (tmp_path / "r.toml").write_text(text, "utf-8")
    said = call("config", "show", tmp_path / "r.toml")
    assert (said.code, said.out) == (2, "")
    assert words in said.err
    assert str(tmp_path) in said.err


def test_a_missing_recipe_is_answered_with_the_nearest(call: Call, tmp_path: Path, recipe: Path):
    said = call("train", recipe.with_name("tinny.toml"))
    assert said.code == 2
    assert "no such recipe or preset; did you mean 'tiny.toml'?" in said.err
    (tmp_path / "r.toml").write_bytes(b"\xff")
    assert "cannot be read as a recipe" in call("train", tmp_path / "r.toml").err
    assert "cannot be read as a recipe" in call("train", tmp_path).err


# ── data check ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    """Flags that name text with two bad lines in it."""
    (tmp_path / "t.en").write_bytes(b"a b\nb\r\nc \xff\nd\n")
    (tmp_path / "t.de").write_bytes(b"b a\nb\nc\nd\n")
    flags = [f'data.folder="{tmp_path}"', 'data.train={kind="pairs", src="t.en", tgt="t.de"}']
    return [part for flag in flags for part in ("--set", flag)]


def test_data_check_lists_bad_lines_and_fails(call: Call, recipe: Path, texts: list[str]):
    said = call("data", "check", recipe, *texts)
    assert (said.code, said.err) == (1, "")
    assert "train: 2 pairs, 2 faults" in said.out
    assert re.search(r"^t\.en:2: the line ends in CRLF", said.out, re.MULTILINE)
    assert re.search(r"^t\.en:3: byte 0xff", said.out, re.MULTILINE)
    assert "dev: 8 pairs, 0 faults" in said.out


def test_data_check_is_content_with_bad_lines_that_are_skipped(call: Call, recipe: Path, texts: list[str]):
    said = call("data", "check", recipe, *texts, "--set", "data.skip_bad=true")
    assert said.code == 0
    assert "train: 2 pairs, 2 faults" in said.out


def test_data_check_of_good_text_succeeds(call: Call, recipe: Path):
    said = call("data", "check", recipe, "--json")
    report = json.loads(said.out)
    assert said.code == 0
    assert not report["bad"]
    assert {name: split["pairs"] for name, split in report["splits"].items()} == {"train": 400, "dev": 8, "test": 12}


def test_data_check_of_missing_text_fails_and_names_it(call: Call, recipe: Path, tmp_path: Path):
    said = call("data", "check", recipe, "--set", f'data.train={{kind="tsv", file="{tmp_path}/gone.tsv"}}')
    assert said.code == 1
    assert "gone.tsv: no such file" in said.out + said.err
    assert "Traceback" not in said.err


# ── training on a pipe ────────────────────────────────────────────────────────────────────────────


def test_training_on_a_pipe_writes_plain_lines_to_stderr(call: Call, recipe: Path, tmp_path: Path):
    said = call("train", recipe, "--run", tmp_path / "run")
    assert (said.code, said.out) == (0, "")
    assert "\x1b" not in said.err
    assert "\r" not in said.err
    lines = said.err.splitlines()
    numbers = r"loss \d+\.\d+ · ppl \d+\.\d+ · [\d,]+ source and [\d,]+ target tokens/s · padding \d+%"
    progress = [line for line in lines if line.startswith("step ")]
    assert len(progress) == 3
    for line in progress:
        assert re.fullmatch(rf"step \d+/60 · epoch \d+ · {numbers} · rate \d\.\d\de-\d\d · \d+:\d\d left", line)
    validations = [number for number, line in enumerate(lines) if line.startswith("── validation at step ")]
    assert len(validations) == 2
    samples = [[line for line in lines[at + 1 : at + 10] if not line.startswith("   →")] for at in validations]
    assert samples[0] == samples[1]  # the same three sentences each time
    assert lines[-1] == f"Translate with: saccade translate {tmp_path / 'run'} FILE"


@pytest.mark.parametrize(("variable", "colour"), [("NO_COLOR", False), ("FORCE_COLOR", True)])
def test_colour_is_a_matter_of_the_environment(
    variable: str, colour: bool, call: Call, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv(variable, "1")
    said = call("view", run, "b a", "-o", tmp_path / "page.html")
    assert said.code == 0
    assert bool(re.search(r"\x1b\[[\d;]*[34]\d", said.err)) == colour
    assert "\x1b" not in said.out


# ── translate ─────────────────────────────────────────────────────────────────────────────────────

AWKWARD = {
    "plain": b"b a c\nc b\n",
    "no newline at the end": b"b a\nc b",
    "empty lines": b"\nb a\n\n\nc\n\n",
    "nothing but empty lines": b"\n\n\n",
    "none": b"",
    "spaces only": b"   \nb a\n\t\n",
    "line separators that are not": "b\u2028a\nc\u0085b\nd\x0be\x0cf\n".encode(),
    "a lone carriage return": b"b\ra\nc\n",
    "CRLF": b"b a\r\nc b\r\n\r\n",
    "unknown words": "x y z\n\U0001f642 \u05e9\u05dc\u05d5\u05dd\n".encode(),
    "a zero": b"b \0 a\nc\n",
    "a byte order mark": b"\xef\xbb\xbfb a\nc\n",
    "decomposed accents": "e\u0301 b\nc\n".encode(),
}


def beside_the_engine(said: Any) -> list[str]:
    """What a translation says on stderr but which engine it took, and that it made what that needs."""
    return [line for line in said.err.splitlines() if not line.startswith(("engine: ", "making "))]


def count(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


@pytest.mark.parametrize("case", AWKWARD)
def test_as_many_lines_come_out_as_go_in_with(case: str, call: Call, run: Path):
    said = call("translate", run, stdin=AWKWARD[case])
    assert (said.code, beside_the_engine(said)) == (0, [])
    assert said.out.count("\n") == count(AWKWARD[case])
    assert said.out.endswith("\n") or not said.out


@pytest.mark.parametrize("case", AWKWARD)
def test_a_file_is_translated_as_stdin_is_with(case: str, call: Call, run: Path, tmp_path: Path):
    (tmp_path / "in").write_bytes(AWKWARD[case])
    said = call("translate", run, tmp_path / "in")
    assert (said.code, beside_the_engine(said)) == (0, [])
    assert said.out == call("translate", run, stdin=AWKWARD[case]).out


def test_empty_lines_stay_empty_and_where_they_were(call: Call, run: Path):
    lines = call("translate", run, stdin=b"b a\n\nc b a\n\n").out.split("\n")
    assert [bool(line) for line in lines] == [True, False, True, False, False]


def test_lines_come_out_in_the_order_they_went_in(call: Call, run: Path, recipe: Path):
    sources = [" ".join("abcdefgh"[(n * k) % 8] for k in range(1, 2 + n % 6)) for n in range(40)]
    together = call("translate", run, stdin="".join(f"{s}\n" for s in sources).encode()).out.splitlines()
    alone = [call("translate", run, stdin=f"{s}\n".encode()).out.rstrip("\n") for s in sources]
    assert together == alone
    assert len(set(together)) > 10


def test_a_very_long_line_is_translated_too(call: Call, run: Path):
    long = b" ".join([b"b a c"] * 1000)
    said = call("translate", run, "--ratio", "0.01", stdin=b"b a\n" + long + b"\nc\n")
    assert (said.code, said.out.count("\n")) == (0, 3)
    short = call("translate", run, "--ratio", "0.01", stdin=b"b a\nc\n").out.splitlines()
    assert [said.out.splitlines()[n] for n in (0, 2)] == short


def test_a_gzipped_file_is_translated(call: Call, run: Path, tmp_path: Path):
    import gzip

    (tmp_path / "in.gz").write_bytes(gzip.compress(b"b a\nc\n"))
    assert call("translate", run, tmp_path / "in.gz").out == call("translate", run, stdin=b"b a\nc\n").out


def test_output_goes_where_it_is_asked_for(call: Call, run: Path, tmp_path: Path):
    wanted = call("translate", run, stdin=b"b a\nc\n").out
    said = call("translate", run, "-o", tmp_path / "out", stdin=b"b a\nc\n")
    assert (said.code, said.out, beside_the_engine(said)) == (0, "", [])
    assert (tmp_path / "out").read_bytes() == wanted.encode()


@pytest.mark.parametrize("words", [["-"], ["-o", "-"], ["-", "-o", "-"]], ids=" ".join)
def test_a_hyphen_is_stdin_or_stdout(words: list[str], call: Call, run: Path):
    said = call("translate", run, *words, stdin=b"b a\nc\n")
    assert (said.code, beside_the_engine(said)) == (0, [])
    assert said.out == call("translate", run, stdin=b"b a\nc\n").out


def test_json_gives_source_translation_score_and_tokens(call: Call, run: Path):
    said = call("translate", run, "--json", stdin=b"b a\n\nc\xe2\x80\xa8d\n")
    found = [json.loads(line) for line in said.out.split("\n")[:-1]]
    assert [each["source"] for each in found] == ["b a", "", "c\u2028d"]
    assert found[0]["translation"] == call("translate", run, stdin=b"b a\n").out.rstrip("\n")
    for each in found:
        assert {"source", "translation", "score", "tokens"} <= each.keys()
        assert isinstance(each["score"], float)
        assert each["score"] <= 0
    assert found[0]["tokens"][-1] == "</s>"
    assert "".join(found[0]["tokens"][:-1]).strip() == found[0]["translation"]
    assert found[1]["translation"] == ""


def test_best_gives_alternatives_in_order(call: Call, run: Path):
    said = call("translate", run, "--json", "--beam", "4", "--best", "3", stdin=b"c b a\nb\n")
    for each in map(json.loads, said.out.splitlines()):
        scores = [each["score"], *[other["score"] for other in each["alternatives"]]]
        texts = [each["translation"], *[other["translation"] for other in each["alternatives"]]]
        assert len(texts) == len(set(texts)) == 3
        assert scores == sorted(scores, reverse=True)
        assert {"translation", "score", "tokens"} <= each["alternatives"][0].keys()


REFUSED = [
    ["--json", "--best", "9"],  # the recipe's beam is smaller
    ["--json", "--best", "4", "--beam", "2"],
    ["--sample", "--top-p", "1.5"],
]


@pytest.mark.parametrize("option", REFUSED, ids=" ".join)
def test_options_that_do_not_go_together_are_refused_in_words(option: list[str], call: Call, run: Path):
    said = call("translate", run, *option, stdin=b"c b a\n")
    assert (said.code in (1, 2), said.out) == (True, "")
    assert said.err.startswith("saccade: ")


@pytest.mark.parametrize("option", [["--beam", "0"], ["--length-penalty", "-1"], ["--ratio", "-1"]])
def test_an_option_out_of_its_range_is_refused_in_words(option: list[str], call: Call, run: Path):
    said = call("translate", run, *option, stdin=b"c b a\n")
    assert said.code in (1, 2)
    assert "expected greater than" in said.err


def test_a_prefix_begins_every_translation(call: Call, run: Path):
    lines = call("translate", run, "--prefix", "h g", stdin=b"a b\n\nc\n").out.split("\n")
    assert lines[0].startswith("h g")
    assert lines[1] == ""
    assert lines[2].startswith("h g")


def test_each_line_can_have_a_prefix_of_its_own(call: Call, run: Path, tmp_path: Path):
    (tmp_path / "prefixes").write_text("h\n\ng f\n\n", "utf-8")
    lines = call("translate", run, "--prefixes", tmp_path / "prefixes", stdin=b"a b\na b\na b\na b\n").out.splitlines()
    assert lines[0].startswith("h")
    assert lines[2].startswith("g f")
    assert lines[1] == lines[3] == call("translate", run, stdin=b"a b\n").out.rstrip("\n")


def test_too_few_prefixes_are_told(call: Call, run: Path, tmp_path: Path):
    (tmp_path / "prefixes").write_text("h\n", "utf-8")
    said = call("translate", run, "--prefixes", tmp_path / "prefixes", stdin=b"a b\na b\n")
    assert (said.code, said.out) == (1, "")
    assert "has fewer lines than" in said.err


def test_a_page_can_go_to_stdout_alone(call: Call, run: Path):
    said = call("view", run, "a b", "-o", "-")
    assert said.code == 0
    assert said.out.startswith("<!doctype html>")
    assert said.out.rstrip().endswith("</html>")


def test_the_input_is_never_the_output(call: Call, run: Path, tmp_path: Path):
    (tmp_path / "in").write_text("a b\n", "utf-8")
    said = call("translate", run, tmp_path / "in", "-o", tmp_path / "in")
    assert said.code == 2
    assert (tmp_path / "in").read_text("utf-8") == "a b\n"


def test_samples_are_the_same_for_the_same_seed_only(call: Call, run: Path):
    text = b"c b a d\nb e\nf a b c d e\n" * 3

    def drawn(*options: str) -> str:
        return call("translate", run, "--sample", "--temperature", "2", *options, stdin=text).out

    first = drawn("--seed", "7")
    assert first == drawn("--seed", "7")
    assert first != drawn("--seed", "8")
    assert drawn("--top-k", "1", "--seed", "7") == drawn("--top-k", "1", "--seed", "8")


def test_samples_do_not_depend_on_when_lines_arrive(call: Call, run: Path, monkeypatch: pytest.MonkeyPatch):
    options = ["--sample", "--temperature", "2", "--seed", "7"]
    text = b"c b a d\nb e\nf a b c d e\nh g f\n"
    at_once = call("translate", run, *options, stdin=text).out
    monkeypatch.setattr("saccade.lines.LINES_PER_GROUP", 1)
    assert call("translate", run, *options, stdin=text).out == at_once


def test_what_is_not_utf8_stops_with_its_place(call: Call, run: Path, tmp_path: Path):
    said = call("translate", run, stdin=b"a\n\xff\nb\n")
    assert said.code == 1
    assert [line[:14] for line in beside_the_engine(said)] == ["saccade: -:2: "]
    (tmp_path / "in").write_bytes(b"a\nb\n\xe4\n")
    said = call("translate", run, tmp_path / "in")
    assert said.code == 1
    assert beside_the_engine(said)[0].startswith(f"saccade: {tmp_path}/in:3: ")


def test_a_folder_that_is_no_run_is_answered_with_those_beside_it(call: Call, run: Path):
    said = call("translate", run.with_name("tinny"), stdin=b"a\n")
    assert (said.code, said.out) == (2, "")
    assert "is not a run" in said.err
    assert "tiny" in said.err.partition("(runs in ")[2]


def test_an_unknown_checkpoint_is_answered_with_those_there_are(call: Call, run: Path):
    said = call("translate", run, "--checkpoint", "bset", stdin=b"a\n")
    assert (said.code, said.out) == (1, "")
    assert "there is no checkpoint 'bset' (there are: best, latest, step-0000030, step-0000060)" in said.err


# ── evaluate ──────────────────────────────────────────────────────────────────────────────────────

SCORES = {"bleu", "chrf", "bleu_lc_tok", "exact_match", "sentences", "signatures", "interval"}


def test_two_files_are_scored_without_a_run(call: Call, tmp_path: Path):
    (tmp_path / "hyp").write_text("The cat sat on the mat .\nA dog ran over there\n", "utf-8")
    (tmp_path / "ref").write_text("The cat sat on the mat .\nA dog runs over there\n", "utf-8")
    said = call("evaluate", "--hyp", tmp_path / "hyp", "--ref", tmp_path / "ref", "--json")
    figures = json.loads(said.out)
    assert (said.code, said.err) == (0, "")
    assert figures.keys() == SCORES
    assert (figures["sentences"], figures["exact_match"]) == (2, 50.0)
    for name in ("bleu", "chrf", "bleu_lc_tok"):
        assert 0 < figures[name] < 100
        low, high = figures["interval"][name]
        assert low < high
        assert "version:" in figures["signatures"][name]
    assert "case:mixed" in figures["signatures"]["bleu"]
    assert "case:lc" in figures["signatures"]["bleu_lc_tok"]


def test_two_files_of_unequal_length_are_refused(call: Call, run: Path, tmp_path: Path):
    (tmp_path / "two").write_text("a\nb\n", "utf-8")
    (tmp_path / "three").write_text("a\nb\nc\n", "utf-8")
    said = call("evaluate", "--hyp", tmp_path / "two", "--ref", tmp_path / "three")
    assert (said.code, said.out) == (1, "")
    assert "there are 2 translations but 3 references" in said.err
    said = call("evaluate", run, "--src", tmp_path / "three", "--ref", tmp_path / "two")
    assert (said.code, said.out) == (1, "")
    assert f"{tmp_path}/three has 3 lines but {tmp_path}/two has 2" in said.err


def test_empty_files_are_refused(call: Call, run: Path, tmp_path: Path):
    (tmp_path / "empty").touch()
    for command in (["--hyp", tmp_path / "empty"], [run, "--src", tmp_path / "empty"]):
        said = call("evaluate", *command, "--ref", tmp_path / "empty")
        assert (said.code, said.out) == (1, "")
        assert "nothing to score" in said.err


def test_a_run_is_scored_on_its_own_test_text(call: Call, run: Path):
    said = call("evaluate", run, "--json", "--beam", "2")
    figures = json.loads(said.out)
    assert said.code == 0
    assert figures.keys() >= SCORES | {"perplexity", "tokens_per_second"}
    assert figures["sentences"] == 12
    assert 1 < figures["perplexity"] < 12
    assert figures["tokens_per_second"] > 0


def test_a_run_is_scored_on_other_text(call: Call, run: Path, tmp_path: Path):
    (tmp_path / "src").write_text("b a\nc d\nc\n", "utf-8")
    (tmp_path / "ref").write_text(call("translate", run, "--engine", "torch", stdin=b"b a\nc d\nc\n").out, "utf-8")
    figures = json.loads(call("evaluate", run, "--src", tmp_path / "src", "--ref", tmp_path / "ref", "--json").out)
    assert (figures["sentences"], figures["exact_match"]) == (3, 100.0)
    readable = call("evaluate", run, "--src", tmp_path / "src", "--ref", tmp_path / "ref").out
    assert re.search(r"^exact match +100\.00 %$", readable, re.MULTILINE)
    assert re.search(r"^perplexity +\d", readable, re.MULTILINE)


def test_a_run_without_test_text_says_what_to_give(call: Call, run: Path, tmp_path: Path):
    shutil.copytree(run, tmp_path / "run")
    config = tmp_path / "run" / "config.toml"
    text = re.sub(r"\[data\.test\]\n(.+\n)+", '[data.test]\nkind = "none"\n', config.read_text("utf-8"))
    config.write_text(text, "utf-8")
    said = call("evaluate", tmp_path / "run")
    assert said.code == 1
    assert "data.test: the recipe names no test text; give --src FILE and --ref FILE" in said.err


# ── view ──────────────────────────────────────────────────────────────────────────────────────────


def test_view_writes_one_page_and_prints_the_translation(
    call: Call, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    said = call("view", run, "c b a", "-o", "page.html")
    assert said.code == 0
    assert said.out == call("translate", run, stdin=b"c b a\n").out
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "decoder.layers.0.cross" in page
    assert not re.search(r"(src|href)=[\"']https?:", page)
    assert "wrote page.html: open it in a browser" in said.err
    assert "\x1b" not in said.err


def test_view_shows_another_translation_if_asked(call: Call, run: Path, tmp_path: Path):
    said = call("view", run, "c b a", "--target", "h h", "-o", tmp_path / "page.html")
    assert (said.code, said.out) == (0, "h h\n")


# ── real processes ────────────────────────────────────────────────────────────────────────────────


def test_translations_come_as_lines_are_typed(run: Path, call: Call):
    wanted = call("translate", run, stdin=b"c b a\nb\n").out.splitlines()
    with subprocess.Popen(
        [*PROGRAM, "translate", str(run)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        text=True,
    ) as process:
        guard = threading.Timer(60, process.kill)
        guard.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            for source, translation in zip(("c b a", "b"), wanted, strict=True):
                process.stdin.write(f"{source}\n")
                process.stdin.flush()
                assert process.stdout.readline() == f"{translation}\n"  # before stdin is closed
            process.stdin.close()
            assert process.stdout.read() == ""
            assert process.stderr.read() in ("", "engine: ctranslate2-float32\n")
            assert process.wait() == 0
        finally:
            guard.cancel()
            process.kill()


@pytest.mark.parametrize(("command", "lines"), [(["translate", "RUN"], 1), (["config", "show", "demo"], 0)])
def test_a_closed_pipe_is_met_with_silence(command: list[str], lines: int, run: Path, tmp_path: Path):
    source = tmp_path / "in"
    source.write_text("c b a\n" * 20_000, "utf-8")
    with (
        source.open("rb") as stdin,
        subprocess.Popen(
            [*PROGRAM, *[str(run) if word == "RUN" else word for word in command]],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(lines):
            assert process.stdout.readline().endswith(b"\n")
        process.stdout.close()
        assert process.stderr.read() in (b"", b"engine: ctranslate2-float32\n")
        assert process.wait(60) in (0, 141)
