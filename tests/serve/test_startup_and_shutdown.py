"""How a server ends, and how it does not even begin."""

import json
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPException
from pathlib import Path

import pytest

from serve.conftest import Serve
from serve.wire import PATIENCE, Server, read_answer, until

TERMINATED = (143, -signal.SIGTERM)  # what a shell and what Python calls it


def ended(server: Server) -> int:
    assert server.process
    return server.process.wait(PATIENCE)


def test_sigterm_lets_work_in_hand_be_done(faulty) -> None:
    """C3 34: not ready, but alive; new work is turned away, old work is answered whole; then the end."""
    server = faulty(batch=1, longest_wait=3000)
    waiting = [server.begin_work("hold", "term"), server.begin_translate("two")]
    until(lambda: server.metric("queue_size") == 1)
    server.process.send_signal(signal.SIGTERM)
    until(lambda: server.get("/readyz").status == 503)
    assert server.get("/livez").status == 200
    turned_away = server.translate("three")
    assert turned_away.status == 503
    assert turned_away.error()
    assert int(turned_away.headers["Retry-After"]) >= 1
    server.release("term")
    answers = [read_answer(connection) for connection in waiting]
    assert [answer.json() for answer in answers] == [{"translatedText": "HOLD TERM"}, {"translatedText": "TWO"}]
    assert ended(server) in TERMINATED
    assert server.said.read_text().count("\n") <= 2  # no traceback


@pytest.mark.parametrize("order", ["hold", "stall"])
def test_grace_has_an_end(faulty, order: str) -> None:
    """C3 34: what does not end in the grace time is told so, even if the model never moves again."""
    server = faulty(batch=1, grace=1)
    waiting = server.begin_work(order, "never")
    server.process.send_signal(signal.SIGTERM)
    assert read_answer(waiting).status == 503
    assert ended(server) in TERMINATED


def test_a_second_signal_ends_at_once(faulty) -> None:
    server = faulty(batch=1, grace=3000)
    server.begin_work("hold", "never")
    server.process.send_signal(signal.SIGINT)
    until(lambda: server.get("/readyz").status == 503)
    server.process.send_signal(signal.SIGINT)
    assert ended(server) in (130, -signal.SIGINT)


def test_sigterm_under_load(serve: Serve) -> None:
    """C3 34: only 200, 503, 429 and refused connections; no answer that is cut off."""
    server = serve()
    assert server.process
    seen: Counter[str] = Counter()
    stop = threading.Event()
    body = json.dumps({"q": "Tuesday, March 4, 2031\n" * 3, "source": "en", "target": "de"}).encode()

    def ask() -> str:
        try:
            connection = server.begin("POST", "/translate", body, {"Content-Type": "application/json"})
        except OSError:
            return "refused"
        with closing(connection):
            try:
                answer = read_answer(connection)
            except ConnectionError:  # it waited to be accepted when the door closed: not a byte was answered
                return "refused"
            except (HTTPException, OSError) as error:
                return repr(error)
        answer.json()  # whole
        return str(answer.status)

    def client() -> None:
        while not stop.is_set():
            seen[ask()] += 1

    with ThreadPoolExecutor(16) as clients:
        for _ in range(16):
            clients.submit(client)
        until(lambda: seen["200"] > 50)
        server.process.send_signal(signal.SIGTERM)
        code = ended(server)
        until(lambda: seen["refused"] > 0)
        stop.set()
    assert code in TERMINATED
    assert set(seen) <= {"200", "503", "429", "refused"}, seen


# ── it does not begin ─────────────────────────────────────────────────────────────────────────────


def refusal(*command: object) -> tuple[int, str]:
    """The exit code and the one line of a server that does not start."""
    arguments = [sys.executable, "-m", "saccade", "serve", *map(str, command)]
    done = subprocess.run(arguments, capture_output=True, timeout=PATIENCE, check=False)
    said = done.stderr.decode()
    assert said.count("\n") == 1, said
    assert not done.stdout
    return done.returncode, said


def test_a_port_in_use(run: Path) -> None:
    """C3 35."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, said = refusal(run, "--port", taken.getsockname()[1])
    assert code == 1
    assert "--port" in said


def test_a_bad_host(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C3 35."""
    monkeypatch.setenv("SACCADE_API_KEY", "key")
    code, said = refusal(run, "--host", "no.such.host.invalid", "--port", "0")
    assert code == 1
    assert "--host" in said


def test_a_run_that_is_not_there(tmp_path: Path) -> None:
    """C3 35: also without a model, without a run at all, and with languages but no run."""
    for arguments in ([tmp_path / "none"], [f"en-de={tmp_path / 'nothing'}"], []):
        code, said = refusal(*arguments)
        assert code in (1, 2)
        assert "run" in said


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_an_open_host_wants_a_key(run: Path, host: str) -> None:
    """Conventions C2: everyone may come only if someone said so."""
    code, said = refusal(run, "--host", host, "--port", "0")
    assert code in (1, 2)
    assert "--api-keys" in said
    assert "--insecure" in said


def test_a_file_of_keys_that_is_empty_or_not_there(run: Path, tmp_path: Path) -> None:
    empty = tmp_path / "keys"
    empty.write_text("\n")
    for file in (empty, tmp_path / "none"):
        code, said = refusal(run, "--api-keys", file, "--port", "0")
        assert code in (1, 2)
        assert str(file) in said


def test_two_runs_of_one_name(run: Path) -> None:
    code, said = refusal(run, run, "--port", "0")
    assert code in (1, 2)
    assert run.name in said


def test_a_damaged_run(run: Path, tmp_path: Path) -> None:
    """C3 35: weights that are not what the manifest says."""
    import shutil

    damaged = Path(shutil.copytree(run, tmp_path / "damaged"))
    for weights in damaged.rglob("*.safetensors"):
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
    code, said = refusal(damaged, "--port", "0")
    assert code == 1
    assert "damaged" in said
