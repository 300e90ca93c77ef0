"""The command line: a thin layer. torch is imported inside the commands that need it, never for help or a typo.

Data goes to stdout, all else to stderr. Exit codes: 0 done, 1 failed, 2 usage, 130 and 143 interrupted.
"""

import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import cyclopts
from cyclopts import Parameter

import saccade
from saccade.errors import SaccadeError

if TYPE_CHECKING:
    from saccade.decode.engine import DecodeConfig, Output

EXAMPLES = """Examples:

  saccade demo                                    train on generated dates, see the attention

  saccade train recipe.toml --run runs/mine       train your own; the same command goes on after a stop

  saccade translate runs/mine < in > out          one line in, one line out
"""


def version() -> str:
    torch = next((d.version for d in metadata.distributions(name="torch")), "not installed")
    return f"saccade {saccade.__version__} (torch {torch}, Python {sys.version.split()[0]})"


class UsageError(SaccadeError):
    """The command line asks for something that does not go together."""


app = cyclopts.App(
    name="saccade",
    help="Train, see, compare and ship sequence models built on attention.",
    help_epilogue=EXAMPLES,
    help_format="plaintext",
    version=version,
)
data = cyclopts.App(name="data", help="Look at the text of a recipe before training.")
config = cyclopts.App(name="config", help="Look at the config of a recipe.")
app.command(data)
app.command(config)

Sets = Annotated[
    tuple[str, ...],
    Parameter(name="--set", negative="", help="Change one value: KEY=VALUE. May be repeated."),
]
Checkpoint = Annotated[str, Parameter(help="auto, average, best, latest or step-N.")]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Write JSON.")]


@config.command
def show(recipe: str, /, *, sets: Sets = (), json_: Json = False) -> None:
    """Print the resolved config and where each value comes from.

    Parameters
    ----------
    recipe: str
        A recipe's file, or the name of a preset.
    """
    from saccade.config import leaves, plain
    from saccade.recipe import read_recipe

    resolved = read_recipe(recipe, sets)
    values = leaves(plain(resolved.config))
    origins = {key: _origin(resolved.origins, key) for key in values}
    if json_:
        print(json.dumps({key: {"value": value, "from": origins[key]} for key, value in values.items()}, indent=1))
        return
    width = max(len(f"{key} = {value!r}") for key, value in values.items() if not isinstance(value, dict))
    for key, value in values.items():
        print(f"{f'{key} = {json.dumps(value, ensure_ascii=False)}':<{min(width, 72)}}  # {origins[key]}")


def _origin(origins: dict[str, str], key: str) -> str:
    """`norm = "rms"` also says `norm.kind`."""
    return origins.get(key) or origins.get(key.removesuffix(".kind"), "default")


@data.command
def check(recipe: str, /, *, sets: Sets = (), json_: Json = False) -> int:
    """Count and measure the text of a recipe; list every bad line as file:line: reason.

    Parameters
    ----------
    recipe: str
        A recipe's file.
    """
    from saccade.data.check import check
    from saccade.data.sources import Nothing
    from saccade.recipe import read_recipe
    from saccade.runs.folder import sources

    recipe_ = read_recipe(recipe, sets).config
    splits = {name: source for name, source in sources(recipe_).items() if not isinstance(source, Nothing)}
    report = check(splits, longest=recipe_.data.longest)
    if json_:
        print(json.dumps(report.plain(), ensure_ascii=False, indent=1))
    else:
        print("\n".join(report.lines()))
    return 1 if report.bad and not recipe_.data.skip_bad else 0


@app.command
def train(
    recipe: str,
    /,
    *,
    run: str = "",
    sets: Sets = (),
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    allow_change: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Train a recipe. The same command goes on after a stop, a crash or a power cut.

    Parameters
    ----------
    recipe: str
        A recipe's file.
    run: str
        The run's folder; runs/NAME-OF-RECIPE if left out.
    dry_run: bool
        Take a few real steps and tell parameters, memory, time and disk; write nothing.
    allow_change: bool
        Let harmless settings of an existing run change, such as train.updates.
    """
    from saccade.console import program
    from saccade.recipe import read_recipe
    from saccade.train.dry_run import dry_run as try_out
    from saccade.train.loop import train as run_training
    from saccade.train.progress import ConsoleReporter
    from saccade.train.signals import Interrupted

    recipe_ = read_recipe(recipe, sets).config
    folder = Path(run or Path("runs") / Path(recipe).stem)
    report = ConsoleReporter()
    if dry_run:
        print("\n".join(try_out(recipe_, folder, report).lines()))
        return 0
    try:
        run_training(recipe_, folder, report, allow_change=allow_change)
    except Interrupted as stopped:
        report.say(f"Saved step {stopped.step:,}. Continue with: {_this_command()}")
        return 128 + stopped.number
    report.say(f"Translate with: {program()} translate {shlex.quote(str(folder))} FILE")
    return 0


def _this_command() -> str:
    from saccade.console import program

    return " ".join([program(), *map(shlex.quote, sys.argv[1:])])


@Parameter(name="*")
@dataclass(frozen=True)
class SearchFlags:
    """Flags that override the recipe's [decode]."""

    beam: int | None = None
    "Beam size; 1 is greedy search."
    length_penalty: float | None = None
    "Outputs are ranked by log p / length^PENALTY."
    ratio: float | None = None
    "Longest output as a multiple of the source's tokens."

    def settings(self, base: "DecodeConfig", sample: dict[str, Any] | None = None, best: int = 1) -> "DecodeConfig":
        from saccade.api import search_settings

        given = {"size": self.beam, "length_penalty": self.length_penalty, "best": best if best > 1 else None}
        beam = {key: value for key, value in given.items() if value is not None}
        search = {"kind": "sample", **sample} if sample is not None else {"kind": "beam", **beam} if beam else None
        changes = {"search": search, "ratio": self.ratio}
        return search_settings(base, {key: value for key, value in changes.items() if value is not None})


@Parameter(name="*")
@dataclass(frozen=True)
class SampleFlags:
    """Flags of `--sample`."""

    sample: Annotated[bool, Parameter(negative="")] = False
    "Draw from the model instead of searching for the likeliest."
    temperature: float | None = None
    "With --sample: below 1 is more careful, above 1 bolder."
    top_k: int | None = None
    "With --sample: draw from the K likeliest tokens."
    top_p: float | None = None
    "With --sample: draw from the fewest tokens that hold this share."
    seed: int | None = None
    "With --sample: another seed, another draw."

    def options(self) -> dict[str, Any] | None:
        given = {name: getattr(self, name) for name in ("temperature", "top_k", "top_p", "seed")}
        given = {name: value for name, value in given.items() if value is not None}
        if given and not self.sample:
            raise UsageError(f"--{next(iter(given)).replace('_', '-')} needs --sample")
        return given if self.sample else None


@app.command
def translate(
    run: str,
    file: str = "-",
    /,
    *,
    output: Annotated[str, Parameter(name=("--output", "-o"))] = "-",
    json_: Json = False,
    best: int = 1,
    prefix: str = "",
    prefixes: str = "",
    search: SearchFlags = SearchFlags(),
    sample: SampleFlags = SampleFlags(),
    checkpoint: Checkpoint = "auto",
) -> None:
    """Translate lines: as many out as in, in order. Reads stdin when no file is given.

    Parameters
    ----------
    run: str
        The folder of a trained run.
    file: str
        A text file, plain or .gz; - is stdin.
    output: str
        Where to write; - is stdout.
    best: int
        With --json: so many outputs a line.
    prefix: str
        Text that every translation must begin with.
    prefixes: str
        A file of such texts, one a line.
    """
    draws = sample.options()
    if draws is not None and (search.beam is not None or best > 1):
        raise UsageError("--sample draws one output a line; it does not go with --beam or --best")
    if best > 1 and not json_:
        raise UsageError("--best gives several outputs a line; add --json to see them")
    if prefix and prefixes:
        raise UsageError("--prefix and --prefixes do not go together")
    _must_exist(prefixes, file)

    from saccade.api import load
    from saccade.lines import file_lines, grouped
    from saccade.lines import output as open_output

    loaded = load(run, checkpoint)
    decode = search.settings(loaded.recipe.decode, draws, best)
    forced = file_lines(prefixes) if prefixes else None
    done = 0
    with open_output(output) as out:
        for lines in grouped(file):
            begins = [next(forced, "") if forced else prefix for _ in lines]
            for source, found in zip(lines, loaded.outputs(lines, decode, begins, done), strict=True):
                # a line in is a line out, whatever a model of bytes may write
                print(_json_line(source, found) if json_ else found[0].text.replace("\n", " "), file=out, flush=True)
            done += len(lines)


def _must_exist(*names: str) -> None:
    for name in names:
        if name not in ("", "-") and not Path(name).is_file():
            raise UsageError(f"{name}: there is no such file")


def _json_line(source: str, found: "list[Output]") -> str:
    def plain(output: "Output") -> dict[str, Any]:
        return {
            "translation": output.text,
            "score": output.score,
            "log_prob": output.log_prob,
            "tokens": output.pieces,
        }

    others = {"alternatives": [plain(output) for output in found[1:]]} if len(found) > 1 else {}
    return json.dumps({"source": source, **plain(found[0]), **others}, ensure_ascii=False)


@app.command
def evaluate(
    run: str = "",
    /,
    *,
    src: str = "",
    ref: str = "",
    hyp: str = "",
    search: SearchFlags = SearchFlags(),
    checkpoint: Checkpoint = "auto",
    json_: Json = False,
) -> None:
    """Score a run on its test text, on --src and --ref, or score two files with --hyp and --ref.

    Parameters
    ----------
    run: str
        The folder of a trained run.
    src: str
        A file of sources.
    ref: str
        A file of references.
    hyp: str
        A file of translations to score without a run.
    """
    if bool(run) == bool(hyp):
        raise UsageError("evaluate takes either a RUN, or --hyp FILE and --ref FILE")
    if (bool(src) != bool(ref)) if run else (bool(src) or not ref):
        raise UsageError("--src FILE and --ref FILE go together, and so do --hyp FILE and --ref FILE")
    _must_exist(src, ref, hyp)

    from saccade.lines import file_lines

    if hyp:
        from saccade.measures.translation import score

        figures = score(list(file_lines(hyp)), list(file_lines(ref))).plain()
    else:
        from saccade.api import load
        from saccade.measures.pairs import paired

        loaded = load(run, checkpoint)
        decode = search.settings(loaded.recipe.decode)
        pairs = paired(list(file_lines(src)), list(file_lines(ref)), src, ref) if src else None
        figures = loaded.evaluate(pairs, decode=decode)
    print(json.dumps(figures, ensure_ascii=False, indent=1) if json_ else "\n".join(_readable(figures)))


def _readable(figures: dict[str, Any]) -> list[str]:
    interval = figures["interval"]
    names = {"bleu": "BLEU", "chrf": "chrF", "bleu_lc_tok": "BLEU, lower-cased, tokenised"}
    lines = [
        f"{label:<30} {figures[key]:6.2f}   95 % {interval[key][0]:.2f} to {interval[key][1]:.2f}"
        f"   {figures['signatures'][key]}"
        for key, label in names.items()
    ]
    lines.append(f"{'exact match':<30} {figures['exact_match']:6.2f} %")
    for key in ("perplexity", "tokens_per_second", "sentences_per_second"):
        if key in figures:
            lines.append(f"{key.replace('_', ' '):<30} {figures[key]:6.2f}")
    return [*lines, f"{'sentences':<30} {figures['sentences']:6,}"]


@app.command
def view(
    run: str,
    *sentences: str,
    output: Annotated[str, Parameter(name=("--output", "-o"))] = "attention.html",
    target: str = "",
    beam: int | None = None,
    pieces: Annotated[bool, Parameter(negative="")] = False,
    checkpoint: Checkpoint = "auto",
) -> None:
    """Show what every attention looks at: a page that needs no network, and a small map in the terminal.

    Parameters
    ----------
    run: str
        The folder of a trained run.
    sentences: str
        One or more sentences to translate.
    output: str
        The page to write.
    target: str
        See the attention for this translation instead of the model's own.
    beam: int
        Beam size; the recipe's search if left out.
    pieces: bool
        Show pieces in the terminal instead of words.
    """
    if not sentences:
        raise UsageError('view needs a sentence: saccade view RUN "a sentence"')
    if target and len(sentences) > 1:
        raise UsageError("--target belongs to one sentence")
    from saccade.api import load
    from saccade.console import console
    from saccade.view.page import write_page
    from saccade.view.terminal import heat_map

    loaded = load(run, checkpoint)
    maps = [loaded.attention(text, target or None, beam=beam) for text in sentences]
    path = write_page(maps, Path(output), f"Attention of {loaded.folder.path.name}")
    screen = console()
    for each in maps:
        mean = (each if pieces else each.words()).mean("cross")
        print(each.target)
        screen.print(heat_map(mean, width=min(screen.width, 100)))
    screen.print(f"wrote {path}: open it in a browser", markup=False)


@app.command
def demo(
    *,
    from_: Annotated[str, Parameter(name="--from")] = "en",
    to: str = "de",
    run: str = "",
) -> int:
    """Train a translator of dates from nothing in about a minute, then show its attention.

    Parameters
    ----------
    from_: str
        The language to read, such as en, fr or es.
    to: str
        The language to write.
    run: str
        The run's folder; runs/demo (or runs/demo-FROM-TO) if left out.
    """
    from saccade.demo import demo as show_demo
    from saccade.train.signals import Interrupted

    try:
        show_demo(from_, to, run)
    except Interrupted as stopped:
        print(f"Saved step {stopped.step:,}. Continue with: {_this_command()}", file=sys.stderr)
        return 128 + stopped.number
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    try:
        result = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except cyclopts.CycloptsError as error:
        return _fail(f"{str(error).strip()}\ntry: saccade --help", 2)
    except UsageError as error:
        return _fail(str(error), 2)
    except SaccadeError as error:
        return _fail(str(error), 1)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads: be quiet about it
        return 0
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "can't allocate memory" not in str(error):
            raise
        return _fail("out of memory; lower train.batch_tokens or decode.batch_tokens", 1)
    except OSError as error:
        return _fail(f"{error.filename or 'a file'}: {error.strerror or error}", 1)


def _fail(text: str, code: int) -> int:
    print(f"saccade: {text}", file=sys.stderr)
    return code
