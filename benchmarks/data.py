"""Data at scale: time to the first update and memory for large parallel texts, and encoding speed beside Hugging Face
`datasets` + `tokenizers` on the same files.

    python benchmarks/data.py TEXT.zip [--pairs 200000 2000000 10000000] [--work DIR] [--json]

TEXT.zip holds English and German sentences separated by tabs (Tatoeba: deu-eng.zip of manythings.org). They are
repeated, each with a number appended, so that no two pairs are equal. For each size, in processes of their own:

- the first start: learn a tokenizer, encode, build a tiny Transformer, make one update; and the order of an epoch;
- the second start: a new run of the same recipe, which maps the cache;
- the peer: load the same two files and map them to ids with as many processes as there are cores. Its tokenizer is
  learned before and not counted.

Memory is read from /proc: anonymous (allocated) and file-backed (mapped files, which the system can drop) apart, as the
highest value of each process. The peer needs the extra `benchmarks`.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

STARTED = time.monotonic()
POLL_SECONDS = 0.1
TOKENIZER_LINES = 100_000  # of each side, for the peer's tokenizer
DEV_PAIRS = 100


# ── text ──────────────────────────────────────────────────────────────────────────────────────────


def write_text(archive: Path, pairs: int, folder: Path) -> None:
    """Write train.en and train.de with so many pairs, and the small dev.en and dev.de."""
    with zipfile.ZipFile(archive) as opened:
        name = next(name for name in opened.namelist() if not name.startswith("_"))
        rows = [line.split("\t")[:2] for line in opened.read(name).decode().splitlines()]
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", pairs), ("dev", DEV_PAIRS)):
        with (folder / f"{split}.en").open("w") as english, (folder / f"{split}.de").open("w") as german:
            for number, (source, target) in enumerate(islice(cycle(rows), count)):
                english.write(f"{source} {number}\n")
                german.write(f"{target} {number}\n")


# ── memory ────────────────────────────────────────────────────────────────────────────────────────


def memory(pid: int | str = "self") -> dict[str, int]:
    """Anonymous and file-backed resident bytes of a process; empty if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    fields = dict(line.split(":", 1) for line in lines)
    if "RssAnon" not in fields:
        return {}
    return {name: int(fields[key].split()[0]) * 1024 for name, key in (("anonymous", "RssAnon"), ("file", "RssFile"))}


def descendants(pid: int) -> Iterator[int]:
    yield pid
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from descendants(int(child))
    except OSError:
        return


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@contextmanager
def highest_memory(pid: int) -> Iterator[dict[int, dict[str, int]]]:
    """The highest values of a process and its descendants, while the block runs; at 0, those of their sum."""
    highest: dict[int, dict[str, int]] = {}
    ended = threading.Event()

    def note(process: int, values: dict[str, int]) -> None:
        known = highest.setdefault(process, {})
        for name, value in values.items():
            known[name] = max(known.get(name, 0), value)

    def poll() -> None:
        seen: set[tuple[int, bytes]] = set()
        while not ended.wait(POLL_SECONDS):
            running = {(process, _command(process)) for process in descendants(pid)}
            # a process that just began may still show the memory of its parent
            values = {process: memory(process) for process, _ in running & seen}
            for process, of_process in values.items():
                note(process, of_process)
            note(0, dict(sum((Counter(of_process) for of_process in values.values()), Counter())))
            seen = running

    poller = threading.Thread(target=poll)
    poller.start()
    try:
        yield highest
    finally:
        ended.set()
        poller.join()


# ── what the child processes do ───────────────────────────────────────────────────────────────────


def start(folder: Path, run: Path) -> dict[str, Any]:
    """Train one update, and measure."""
    from saccade.data.batches import epoch_batches, updates
    from saccade.recipe import recipe_of
    from saccade.runs.folder import RunFolder
    from saccade.training.job import prepare
    from saccade.training.loop import update
    from saccade.training.progress import Silent
    from saccade.training.state import TrainingState
    from saccade.training.training_rows import CachedPairs

    imported = time.monotonic() - STARTED
    splits = {split: {"kind": "pairs", "src": f"{split}.en", "tgt": f"{split}.de"} for split in ("train", "dev")}
    recipe = recipe_of({"extends": "transformer-tiny", "data": {"folder": str(folder), "cache": "always", **splits}})
    seconds, after = {"imports": imported}, {}

    def timed(method: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            began = time.monotonic()
            result = method(*arguments)
            seconds[name], after[name] = time.monotonic() - began, memory()
            return result

        return call

    CachedPairs.learn = timed(CachedPairs.learn, "learn")
    CachedPairs.encode = timed(CachedPairs.encode, "encode")
    job = prepare(recipe, RunFolder(run), Silent())
    settings, corpus, state = recipe.train, job.train.corpus, TrainingState()
    plan = updates(corpus, settings.batch_tokens, settings.update_tokens, recipe.seed, state.position)
    update(job, state, next(plan)[0])
    seconds["first_update"], after["first_update"] = time.monotonic() - STARTED, memory()
    del plan
    began = time.monotonic()
    epoch_batches(corpus, settings.batch_tokens, recipe.seed, 1)
    seconds["epoch_order"] = time.monotonic() - began
    return {"rows": len(corpus), "seconds": seconds, "memory_after": after}


def peer(folder: Path, work: Path) -> dict[str, Any]:
    os.environ |= {"HF_DATASETS_CACHE": str(work), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    from peers.hf_datasets import encode, learn

    files = folder / "train.en", folder / "train.de"
    return encode(*files, learn([*files], TOKENIZER_LINES), len(os.sched_getaffinity(0)), work)


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────


def measure(what: str, *folders: Path, cache: Path) -> dict[str, Any]:
    """Run one part in a process of its own."""
    command = [sys.executable, __file__, "--part", what, *map(str, folders)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"SACCADE_CACHE": str(cache)})
    with highest_memory(process.pid) as highest:
        output = process.communicate()[0]
    if process.returncode:
        sys.exit(f"{what}: ended with exit code {process.returncode}")
    together = highest.pop(0)
    return json.loads(output.splitlines()[-1]) | {
        "highest_memory": [*highest.values()],
        "highest_memory_together": together,
    }


def size_report(archive: Path, pairs: int, work: Path) -> dict[str, Any]:
    text = work / "text"
    write_text(archive, pairs, text)
    cache = work / "cache"
    first = measure("start", text, work / "first", cache=cache)
    second = measure("start", text, work / "second", cache=cache)
    other = measure("peer", text, work / "peer", cache=cache)
    rate, peer_rate = pairs / first["seconds"]["encode"], pairs / (other["load_seconds"] + other["map_seconds"])
    return {
        "pairs": pairs,
        "first": first,
        "second": second,
        "peer": other,
        "rows_per_second": rate,
        "peer_rows_per_second": peer_rate,
        "ratio": rate / peer_rate,
        "ratio_to_map_alone": rate * other["map_seconds"] / pairs,
    }


def lines_of(report: dict[str, Any]) -> Iterator[str]:
    yield f"{report['pairs']:,} pairs"
    for name in ("first", "second"):
        seconds = report[name]["seconds"]
        parts = ", ".join(f"{part.replace('_', ' ')} {value:.1f} s" for part, value in seconds.items())
        yield f"  {name} start: {parts}"
        yield f"    after the first update: {_sizes(report[name]['memory_after']['first_update'])}"
        yield f"    highest, by process: {'; '.join(map(_sizes, report[name]['highest_memory']))}"
        yield f"    highest, together: {_sizes(report[name]['highest_memory_together'])}"
    peer_seconds = f"load {report['peer']['load_seconds']:.1f} s, map {report['peer']['map_seconds']:.1f} s"
    yield f"  datasets + tokenizers: {peer_seconds}"
    yield f"    highest, by process: {'; '.join(map(_sizes, report['peer']['highest_memory']))}"
    yield f"  encoding: {report['rows_per_second']:,.0f} pairs/s, the peer {report['peer_rows_per_second']:,.0f}"
    yield f"  ratio: {report['ratio']:.2f} (to the peer's map without its loading: {report['ratio_to_map_alone']:.2f})"


def _sizes(values: dict[str, int]) -> str:
    return ", ".join(f"{value / 1e6:,.0f} MB {name}" for name, value in values.items())


def growth(small: dict[str, Any], large: dict[str, Any]) -> Iterator[str]:
    """The anonymous memory that each further pair takes."""
    pairs = large["pairs"] - small["pairs"]
    for start in ("first", "second"):
        training = large[start]["highest_memory"][0]["anonymous"] - small[start]["highest_memory"][0]["anonymous"]
        together = (
            large[start]["highest_memory_together"]["anonymous"] - small[start]["highest_memory_together"]["anonymous"]
        )
        yield f"{start} start: {training / pairs:.1f}, all processes together {together / pairs:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, nargs="?")
    parser.add_argument("--pairs", type=int, nargs="+", default=[200_000, 2_000_000, 10_000_000])
    parser.add_argument("--work", type=Path, help="a folder on a disk with enough space")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--part", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        part, *folders = arguments.part
        print(json.dumps({"start": start, "peer": peer}[part](*map(Path, folders))))
        return
    if arguments.archive is None:
        parser.error("TEXT.zip is missing")
    reports = []
    for pairs in arguments.pairs:
        with TemporaryDirectory(dir=arguments.work) as work:
            reports.append(size_report(arguments.archive, pairs, Path(work)))
        if not arguments.json:
            print("\n".join(lines_of(reports[-1])), flush=True)
    if arguments.json:
        print(json.dumps(reports, indent=1))
    elif len(reports) > 1:
        print("anonymous bytes per further pair, from the smallest to the largest text")
        print("\n".join(f"  {line}" for line in growth(reports[0], reports[-1])))


if __name__ == "__main__":
    main()
