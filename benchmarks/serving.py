"""Benchmark of the service: the gain from micro-batching, and its behavior at ten times its capacity.

    python benchmarks/serving.py RUN TEXT [--engine torch] [--seconds 60] [--clients 64] [--json]

RUN is a translation run (`de-en=RUN` if its languages are unknown), TEXT a file with one source sentence per line. The
servers are real `saccade serve` processes on loopback.

Micro-batching: 32 clients in a closed loop (one request at a time each) against a server with default settings and one
with a batch size of 1. The two servers take turns; the median of the rounds counts.

Overload: an open loop at ten times the measured capacity, from 64 clients that open as many connections as they need.
The normal latency is that of four clients in a closed loop before the overload.
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

LATENCY_CLIENTS, THROUGHPUT_CLIENTS = 4, 32  # closed-loop clients when latency, and when throughput, is measured
DEADLINE = 10  # seconds; an option of the server
OVERLOAD = 10  # times the measured capacity
MAX_RECOVERY = 5  # seconds until latency must be normal again
MAX_NORMAL_LATENCY = 1.5  # times the median latency before the overload
MAX_MEMORY_GROWTH = 1.05  # resident memory at the end over that after a sixth of the overload
MAX_CONNECTIONS = 4000  # if more are open at once, the server does not refuse quickly enough


# ── the server ────────────────────────────────────────────────────────────────────────────────────


class Server(NamedTuple):
    """A running `saccade serve`."""

    host: str
    port: int
    pid: int

    def resident_memory(self) -> int:
        """In bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert match
        return int(match[1]) * 1024


@contextmanager
def serving(run: str, engine: str, *flags: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "saccade", "serve", run, "--engine", engine, "--port", "0", *flags]
    command += ["--deadline", str(DEADLINE)]
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(command, stderr=stderr, stdout=subprocess.DEVNULL)
        try:
            yield Server(*address(process, stderr), process.pid)
        finally:
            process.terminate()
            process.wait()


def address(process: subprocess.Popen[bytes], stderr: IO[bytes]) -> tuple[str, int]:
    """Wait for the host and port that the server prints."""
    while process.poll() is None:
        if match := re.search(rb"http://([\w.]+):(\d+)", os.pread(stderr.fileno(), 10_000, 0)):
            return match[1].decode(), int(match[2])
        time.sleep(0.1)
    raise SystemExit(f"the server did not start: {os.pread(stderr.fileno(), 10_000, 0).decode()}")


# ── clients ───────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Results:
    """The requests of a measurement and their responses."""

    requests: int = 0
    unsent: int = 0  # because too many connections were open
    statuses: Counter[int] = field(default_factory=Counter)  # 0 is a broken connection
    accepted: list[tuple[float, float]] = field(default_factory=list)  # start time and latency of each 200

    def record(self, start: float, status: int) -> None:
        self.statuses[status] += 1
        if status == 200:
            self.accepted.append((start, time.perf_counter() - start))


class Connection(asyncio.Protocol):
    """A keep-alive connection with at most one request at a time."""

    def __init__(self) -> None:
        self.on_response: Callable[[int], None] | None = None
        self.received = bytearray()
        self.open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def send(self, request: bytes, on_response: Callable[[int], None]) -> None:
        """Send a request; `on_response` is called with its status, 0 if the connection broke."""
        self.on_response = on_response
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.received += data
        end = self.received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self.received[:end]).lower()
        length = head.index(b"content-length:") + 15
        total = end + 4 + int(head[length : (head + b"\r").index(b"\r", length)])
        if len(self.received) >= total:
            status = int(head[9:12])
            del self.received[:total]
            self.open = b"connection: close" not in head
            self._report(status)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self._report(0)

    def _report(self, status: int) -> None:
        on_response, self.on_response = self.on_response, None
        if on_response:
            on_response(status)


class Clients:
    """Clients of one server with common results; each reuses the connections it opened."""

    def __init__(self, server: Server, sentences: list[str], count: int):
        bodies = (json.dumps({"text": sentence}).encode() for sentence in sentences)
        head = f"POST /v1/translate HTTP/1.1\r\nHost: {server.host}:{server.port}\r\nContent-Type: application/json\r\n"
        self.requests = cycle([b"%sContent-Length: %d\r\n\r\n%s" % (head.encode(), len(b), b) for b in bodies])
        self.server, self.results, self.connected = server, Results(), 0
        self.idle: list[list[Connection]] = [[] for _ in range(count)]
        self.running: set[asyncio.Task[int]] = set()

    async def connection(self, client: int) -> Connection:
        while self.idle[client]:
            connection = self.idle[client].pop()
            if connection.open:
                return connection
            self.connected -= 1
        self.connected += 1
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(Connection, self.server.host, self.server.port))[1]

    async def request(self, client: int) -> int:
        start = time.perf_counter()
        self.results.requests += 1
        try:
            connection = await self.connection(client)
        except OSError:
            self.connected -= 1
            self.results.record(start, 0)
            return 0
        response: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        connection.send(next(self.requests), response.set_result)
        status = await response
        self.idle[client].append(connection)
        self.results.record(start, status)
        return status

    async def closed_loop(self, seconds: float) -> None:
        """Every client sends its next request when it has the response to the last one."""
        end = time.perf_counter() + seconds

        async def run_client(client: int) -> None:
            while time.perf_counter() < end:
                await self.request(client)

        await asyncio.gather(*(run_client(client) for client in range(len(self.idle))))

    async def open_loop(self, rate: float, seconds: float) -> None:
        """Send `rate` requests per second, whatever the responses; late ones are sent as soon as possible."""
        start, turn = time.perf_counter(), cycle(range(len(self.idle)))
        sent, total = 0, int(rate * seconds)
        while sent < total:
            due = min(total, int((time.perf_counter() - start) * rate))
            for _ in range(due - sent):
                self._launch(next(turn))
            sent = due
            await asyncio.sleep(0.002)

    def _launch(self, client: int) -> None:
        if self.connected >= MAX_CONNECTIONS:
            self.results.unsent += 1
            return
        task = asyncio.get_running_loop().create_task(self.request(client))
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    async def close(self) -> None:
        """Wait for the remaining responses, then close the connections."""
        await asyncio.gather(*self.running)
        for connection in (connection for idle in self.idle for connection in idle):
            connection.transport.abort()


async def closed_loop(server: Server, sentences: list[str], count: int, seconds: float) -> Results:
    clients = Clients(server, sentences, count)
    await clients.closed_loop(seconds)
    await clients.close()
    return clients.results


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────


class Claim(NamedTuple):
    """A claim, what was measured, and whether the claim holds."""

    text: str
    seen: str
    holds: bool


async def throughput(servers: dict[str, Server], sentences: list[str], seconds: float, rounds: int) -> dict[str, float]:
    """The median requests per second of each server. After a warm-up the servers take turns, so that a slow minute of
    the machine affects all of them."""
    rates: dict[str, list[float]] = {name: [] for name in servers}
    for number in range(rounds + 1):
        for name, server in servers.items():
            start = time.perf_counter()
            results = await closed_loop(server, sentences, THROUGHPUT_CLIENTS, seconds if number else seconds / 4)
            if number:
                rates[name].append(results.statuses[200] / (time.perf_counter() - start))
    return {name: statistics.median(rounds_of_one) for name, rounds_of_one in rates.items()}


def batching(run: str, engine: str, sentences: list[str], seconds: float) -> tuple[float, Claim]:
    """The requests per second with micro-batches, and the claim about their gain."""
    with serving(run, engine) as default, serving(run, engine, "--batch", "1") as single:
        rates = asyncio.run(throughput({"batched": default, "single": single}, sentences, seconds, 3))
    ratio = rates["batched"] / rates["single"]
    seen = f"{rates['batched']:,.1f} against {rates['single']:,.1f} requests/s: {ratio:.2f}"
    return rates["batched"], Claim(
        "micro-batching gives at least 3 times the requests/s of a batch size of 1", seen, ratio >= 3
    )


@dataclass
class OverloadResults:
    """The measurements before, during and after the overload."""

    before: Results
    during: Results
    after: Results
    end: float
    seconds: float
    memory: list[int]  # after a sixth of the overload, and at its end

    def recovery_seconds(self) -> float:
        """How many seconds after the overload latency is back to normal: from then on, the median latency of each
        second is normal. Infinite if it is not normal in the last measured second."""
        normal = MAX_NORMAL_LATENCY * latency_percentile(self.before, 50)
        latencies: dict[int, list[float]] = {}  # by second after the overload
        for start, latency in self.after.accepted:
            latencies.setdefault(int(start - self.end), []).append(latency)
        slow = [second for second, values in latencies.items() if statistics.median(values) > normal]
        last = max(latencies, default=0)
        return float("inf") if not latencies or last in slow else max(slow, default=-1) + 1.0


def latency_percentile(results: Results, percent: int) -> float:
    """A percentile of the latency of accepted requests, in seconds."""
    latencies = sorted(latency for _, latency in results.accepted)
    return latencies[min(len(latencies) - 1, len(latencies) * percent // 100)] if latencies else float("nan")


async def overload(server: Server, sentences: list[str], rate: float, count: int, seconds: float) -> OverloadResults:
    await closed_loop(server, sentences, THROUGHPUT_CLIENTS, seconds / 12)  # warm-up
    before = await closed_loop(server, sentences, LATENCY_CLIENTS, max(5, seconds / 6))
    clients, memory = Clients(server, sentences, count), []

    async def measure_memory() -> None:
        await asyncio.sleep(seconds / 6)
        memory.append(server.resident_memory())
        await asyncio.sleep(seconds * 5 / 6)
        memory.append(server.resident_memory())

    memory_task = asyncio.create_task(measure_memory())
    start = time.perf_counter()
    await clients.open_loop(rate, seconds)
    end = time.perf_counter()
    measure_after = closed_loop(server, sentences, LATENCY_CLIENTS, 2 * MAX_RECOVERY)
    after, *_ = await asyncio.gather(measure_after, clients.close(), memory_task)
    return OverloadResults(before, clients.results, after, end, end - start, memory)


def claims(results: OverloadResults, capacity: float, target_rate: float) -> list[Claim]:
    """The guarantees of the service under overload."""
    during = results.during
    rate = during.requests / results.seconds
    has_errors = any(_is_error(status) for status in during.statuses)
    longest = max((latency for _, latency in during.accepted), default=float("nan"))
    start, end = (size / 2**20 for size in results.memory)
    recovery = results.recovery_seconds()
    statuses = ", ".join(f"{status}: {count:,}" for status, count in sorted(during.statuses.items()))
    return [
        Claim(
            f"requests arrive at {OVERLOAD} times capacity",
            f"{rate:,.0f}/s, {rate / capacity:.1f} times {capacity:,.1f}/s; {during.unsent:,} not sent",
            rate >= 0.95 * target_rate and not during.unsent,
        ),
        Claim("no 5xx but 503, no broken connection", statuses, not has_errors),
        Claim(
            f"every accepted request inside its deadline of {DEADLINE} s",
            f"{len(during.accepted):,} accepted, slowest {longest:.2f} s",
            longest <= DEADLINE,
        ),
        Claim("resident memory flat", f"{start:,.0f} MiB, at the end {end:,.0f} MiB", end <= MAX_MEMORY_GROWTH * start),
        Claim(f"latency back to normal within {MAX_RECOVERY} s", f"after {recovery:.0f} s", recovery <= MAX_RECOVERY),
    ]


def _is_error(status: int) -> bool:
    return status == 0 or (status >= 500 and status != 503)


def latency_table(results: OverloadResults) -> dict[str, dict[str, float]]:
    """Percentiles of the latency in milliseconds."""
    phases = {"before": results.before, "during": results.during, "after": results.after}
    return {
        name: {f"p{percent}": 1000 * latency_percentile(phase, percent) for percent in (50, 99)}
        for name, phase in phases.items()
    }


# ── the program ───────────────────────────────────────────────────────────────────────────────────


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a translation run")
    parser.add_argument("text", type=Path, help="source sentences, one per line; may be .gz")
    parser.add_argument("--engine", default="torch", help="inference engine of the service: torch, ctranslate2 or onnx")
    parser.add_argument("--seconds", type=float, default=60, help="duration of the overload")
    parser.add_argument("--clients", type=int, default=64, help="number of clients of the overload")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def sentences_of(path: Path) -> list[str]:
    """All lines of a file, shuffled."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    lines = [line for line in raw.decode("utf-8").split("\n") if line.strip()]
    random.Random(1).shuffle(lines)
    return lines


def main() -> int:
    options = parse_arguments()
    soft_files, hard_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft_files, min(2 * MAX_CONNECTIONS, hard_files)), hard_files))
    sentences = sentences_of(options.text)
    capacity, batching_claim = batching(options.run, options.engine, sentences, options.seconds / 6)
    with serving(options.run, options.engine) as server:
        results = asyncio.run(overload(server, sentences, OVERLOAD * capacity, options.clients, options.seconds))
    checked = [batching_claim, *claims(results, capacity, OVERLOAD * capacity)]
    if options.json:
        print(
            json.dumps({"claims": [claim._asdict() for claim in checked], "latency": latency_table(results)}, indent=1)
        )
    else:
        for claim in checked:
            print(f"{'holds' if claim.holds else 'FAILS'}  {claim.text}: {claim.seen}")
        for name, latency in latency_table(results).items():
            print(f"latency {name:<6}  " + "   ".join(f"{p} {ms:8,.1f} ms" for p, ms in latency.items()))
    return 0 if all(claim.holds for claim in checked) else 1


if __name__ == "__main__":
    sys.exit(main())
