"""What the service bears: micro-batching against one at a time, and ten times the load it can carry.

    python benchmarks/serving.py RUN TEXT [--seconds 60] [--clients 64] [--json]

RUN is a translator (`de-en=RUN` where its languages must be said), TEXT a file of sentences for it, one a line. Servers
are real `saccade serve` processes on loopback.

Micro-batching: 32 clients, each with one request at a time, against a server as it is and one that translates a
sentence at a time. The two take turns, and medians are given.

Load: requests arrive by the clock at ten times the measured rate, answered or not, from 64 clients that open as many
connections as they need. Before and after it four clients ask one by one: their latency is what is called normal.
Exit code 1 if a claim fails.
"""

import argparse
import asyncio
import gzip
import json
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import IO, NamedTuple

FEW, MANY = 4, 32  # clients that ask one by one: to see latency, to see throughput
DEADLINE = 10  # seconds; told to the server
OVERLOAD = 10  # times the measured capacity
RECOVERY = 5  # seconds until latency must be back to normal
NORMAL = 1.5  # a median up to this times the one before the load is normal
FLAT = 1.05  # resident memory at the end over that after ten seconds
CONNECTIONS = 4000  # more than this open at once: the server does not turn clients away quickly enough


# ── the server ────────────────────────────────────────────────────────────────────────────────────


class Server(NamedTuple):
    """A running `saccade serve`."""

    host: str
    port: int
    pid: int

    def resident(self) -> int:
        """Resident memory in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found
        return int(found[1]) * 1024


@contextmanager
def serving(run: str, *flags: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "saccade", "serve", run, "--port", "0", "--deadline", str(DEADLINE), *flags]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stderr=said, stdout=subprocess.DEVNULL)
        try:
            yield Server(*address(process, said), process.pid)
        finally:
            process.terminate()
            process.wait()


def address(process: subprocess.Popen[bytes], said: IO[bytes]) -> tuple[str, int]:
    """Host and port as soon as the server names them."""
    while process.poll() is None:
        if found := re.search(rb"http://([\w.]+):(\d+)", os.pread(said.fileno(), 10_000, 0)):
            return found[1].decode(), int(found[2])
        time.sleep(0.1)
    raise SystemExit(f"the server did not start: {os.pread(said.fileno(), 10_000, 0).decode()}")


# ── clients ───────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Tally:
    """What was asked and what came back."""

    asked: int = 0
    unsent: int = 0  # for want of connections
    answers: Counter[int] = field(default_factory=Counter)  # by status; 0 is a broken connection
    accepted: list[tuple[float, float]] = field(default_factory=list)  # when asked, seconds until the 200

    def note(self, began: float, status: int) -> None:
        self.answers[status] += 1
        if status == 200:
            self.accepted.append((began, time.perf_counter() - began))


class Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request under way."""

    def __init__(self) -> None:
        self.answered: Callable[[int], None] | None = None
        self.received = bytearray()
        self.open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def ask(self, request: bytes, answered: Callable[[int], None]) -> None:
        """Send a request; `answered` hears its status, 0 if the connection broke."""
        self.answered = answered
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.received += data
        end = self.received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self.received[:end]).lower()
        length = head.index(b"content-length:") + 15
        whole = end + 4 + int(head[length : (head + b"\r").index(b"\r", length)])
        if len(self.received) >= whole:
            status = int(head[9:12])
            del self.received[:whole]
            self.open = b"connection: close" not in head
            self._tell(status)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self._tell(0)

    def _tell(self, status: int) -> None:
        answered, self.answered = self.answered, None
        if answered:
            answered(status)


class Clients:
    """Clients of one server that share a tally; each keeps the connections it opened."""

    def __init__(self, server: Server, sentences: list[str], count: int):
        bodies = (json.dumps({"text": sentence}).encode() for sentence in sentences)
        head = f"POST /v1/translate HTTP/1.1\r\nHost: {server.host}:{server.port}\r\nContent-Type: application/json\r\n"
        self.requests = cycle([b"%sContent-Length: %d\r\n\r\n%s" % (head.encode(), len(b), b) for b in bodies])
        self.server, self.tally, self.connected = server, Tally(), 0
        self.idle: list[list[Connection]] = [[] for _ in range(count)]
        self.asking: set[asyncio.Task[int]] = set()

    async def connection(self, client: int) -> Connection:
        while self.idle[client]:
            connection = self.idle[client].pop()
            if connection.open:
                return connection
            self.connected -= 1
        self.connected += 1
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(Connection, self.server.host, self.server.port))[1]

    async def ask(self, client: int) -> int:
        began = time.perf_counter()
        self.tally.asked += 1
        try:
            connection = await self.connection(client)
        except OSError:
            self.connected -= 1
            self.tally.note(began, 0)
            return 0
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        connection.ask(next(self.requests), answer.set_result)
        status = await answer
        self.idle[client].append(connection)
        self.tally.note(began, status)
        return status

    async def one_by_one(self, seconds: float) -> None:
        """Every client asks again as soon as it is answered."""
        end = time.perf_counter() + seconds

        async def asking(client: int) -> None:
            while time.perf_counter() < end:
                await self.ask(client)

        await asyncio.gather(*(asking(client) for client in range(len(self.idle))))

    async def by_the_clock(self, rate: float, seconds: float) -> None:
        """`rate` requests a second, whatever is answered; what is late is made up for."""
        began, turn = time.perf_counter(), cycle(range(len(self.idle)))
        sent, total = 0, int(rate * seconds)
        while sent < total:
            due = min(total, int((time.perf_counter() - began) * rate))
            for _ in range(due - sent):
                self._launch(next(turn))
            sent = due
            await asyncio.sleep(0.002)

    def _launch(self, client: int) -> None:
        if self.connected >= CONNECTIONS:
            self.tally.unsent += 1
            return
        task = asyncio.get_running_loop().create_task(self.ask(client))
        self.asking.add(task)
        task.add_done_callback(self.asking.discard)

    async def close(self) -> None:
        """Wait for what is still to be answered, then hang up."""
        await asyncio.gather(*self.asking)
        for connection in (each for idle in self.idle for each in idle):
            connection.transport.abort()


async def closed_loop(server: Server, sentences: list[str], count: int, seconds: float) -> Tally:
    clients = Clients(server, sentences, count)
    await clients.one_by_one(seconds)
    await clients.close()
    return clients.tally


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────


class Claim(NamedTuple):
    """A sentence, what was seen, and whether it holds."""

    text: str
    seen: str
    holds: bool


async def throughput(servers: dict[str, Server], sentences: list[str], seconds: float, rounds: int) -> dict[str, float]:
    """The median of requests a second. All warm up, then they take turns, so that a slow minute hits all alike."""
    found: dict[str, list[float]] = {name: [] for name in servers}
    for number in range(rounds + 1):
        for name, server in servers.items():
            began = time.perf_counter()
            tally = await closed_loop(server, sentences, MANY, seconds if number else seconds / 4)
            if number:
                found[name].append(tally.answers[200] / (time.perf_counter() - began))
    return {name: statistics.median(each) for name, each in found.items()}


def batching(run: str, sentences: list[str], seconds: float) -> tuple[float, Claim]:
    """Requests a second with micro-batches, and the claim that they pay."""
    with serving(run) as usual, serving(run, "--batch", "1") as single:
        rates = asyncio.run(throughput({"batched": usual, "single": single}, sentences, seconds, 3))
    ratio = rates["batched"] / rates["single"]
    seen = f"{rates['batched']:,.1f} against {rates['single']:,.1f} requests/s: {ratio:.2f}"
    return rates["batched"], Claim(
        "micro-batching gives at least 3 times the requests/s of one at a time", seen, ratio >= 3
    )


@dataclass
class Storm:
    """What was seen before, during and after the load."""

    before: Tally
    during: Tally
    after: Tally
    ended: float
    seconds: float
    resident: list[int]  # after a sixth of the load, at its end

    def back_to_normal(self) -> float:
        """Seconds after the load from which on every second's median is normal; infinite if the last one is not."""
        normal = NORMAL * at(self.before, 50)
        seconds: dict[int, list[float]] = {}
        for asked, latency in self.after.accepted:
            seconds.setdefault(int(asked - self.ended), []).append(latency)
        slow = [second for second, each in seconds.items() if statistics.median(each) > normal]
        last = max(seconds, default=0)
        return float("inf") if not seconds or last in slow else max(slow, default=-1) + 1.0


def at(tally: Tally, percent: int) -> float:
    """A percentile of the latency of accepted requests, in seconds."""
    latencies = sorted(latency for _, latency in tally.accepted)
    return latencies[min(len(latencies) - 1, len(latencies) * percent // 100)] if latencies else float("nan")


async def storm(server: Server, sentences: list[str], rate: float, count: int, seconds: float) -> Storm:
    await closed_loop(server, sentences, MANY, seconds / 12)  # warm
    before = await closed_loop(server, sentences, FEW, max(5, seconds / 6))
    clients, resident = Clients(server, sentences, count), []

    async def watched() -> None:
        await asyncio.sleep(seconds / 6)
        resident.append(server.resident())
        await asyncio.sleep(seconds * 5 / 6)
        resident.append(server.resident())

    watch = asyncio.create_task(watched())
    began = time.perf_counter()
    await clients.by_the_clock(rate, seconds)
    ended = time.perf_counter()
    after, *_ = await asyncio.gather(closed_loop(server, sentences, FEW, 2 * RECOVERY), clients.close(), watch)
    return Storm(before, clients.tally, after, ended, ended - began, resident)


def claims(seen: Storm, rate: float, asked_for: float) -> list[Claim]:
    """The promises of the service under load."""
    during = seen.during
    offered, bad = during.asked / seen.seconds, {code: n for code, n in during.answers.items() if _bad(code)}
    longest = max((latency for _, latency in during.accepted), default=float("nan"))
    start, end = (size / 2**20 for size in seen.resident)
    settled = seen.back_to_normal()
    spread = ", ".join(f"{code}: {count:,}" for code, count in sorted(during.answers.items()))
    return [
        Claim(
            f"requests arrive at {OVERLOAD} times capacity",
            f"{offered:,.0f}/s, {offered / rate:.1f} times {rate:,.1f}/s; {during.unsent:,} not sent",
            offered >= 0.95 * asked_for and not during.unsent,
        ),
        Claim("no 5xx but 503, no broken connection", spread, not bad),
        Claim(
            f"every accepted request inside its deadline of {DEADLINE} s",
            f"{len(during.accepted):,} accepted, slowest {longest:.2f} s",
            longest <= DEADLINE,
        ),
        Claim("resident memory flat", f"{start:,.0f} MiB, at the end {end:,.0f} MiB", end <= FLAT * start),
        Claim(f"latency back to normal within {RECOVERY} s", f"after {settled:.0f} s", settled <= RECOVERY),
    ]


def _bad(code: int) -> bool:
    return code == 0 or (code >= 500 and code != 503)


def table(seen: Storm) -> dict[str, dict[str, float]]:
    """Latency in milliseconds."""
    times = {"before": seen.before, "during": seen.during, "after": seen.after}
    return {name: {f"p{p}": 1000 * at(tally, p) for p in (50, 99)} for name, tally in times.items()}


# ── the program ───────────────────────────────────────────────────────────────────────────────────


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a translator")
    parser.add_argument("text", type=Path, help="sentences for it, one a line; .gz is read, too")
    parser.add_argument("--seconds", type=float, default=60, help="how long the load lasts")
    parser.add_argument("--clients", type=int, default=64, help="how many clients make the load")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def sentences_of(path: Path) -> list[str]:
    """All lines of a file, in a drawn order."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    lines = [line for line in raw.decode("utf-8").split("\n") if line.strip()]
    random.Random(1).shuffle(lines)
    return lines


def main() -> int:
    given = arguments()
    soft_files, hard_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft_files, min(2 * CONNECTIONS, hard_files)), hard_files))
    sentences = sentences_of(given.text)
    rate, batched = batching(given.run, sentences, given.seconds / 6)
    with serving(given.run) as server:
        seen = asyncio.run(storm(server, sentences, OVERLOAD * rate, given.clients, given.seconds))
    verdicts = [batched, *claims(seen, rate, OVERLOAD * rate)]
    if given.json:
        print(json.dumps({"claims": [claim._asdict() for claim in verdicts], "latency": table(seen)}, indent=1))
    else:
        for claim in verdicts:
            print(f"{'holds' if claim.holds else 'FAILS'}  {claim.text}: {claim.seen}")
        for name, latency in table(seen).items():
            print(f"latency {name:<6}  " + "   ".join(f"{p} {ms:8,.1f} ms" for p, ms in latency.items()))
    return 0 if all(claim.holds for claim in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
