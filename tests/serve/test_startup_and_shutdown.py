"""Shutdown after signals, and errors at startup."""

import json
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPException
from pathlib import Path

import pytest

from serve.conftest import Serve
from serve.forked import ForkedProcess, saccade_command, stdout_beside
from serve.http_client import TIMEOUT, Server, read_response, wait_until

TERMINATED = (143, -signal.SIGTERM)  # the exit codes for SIGTERM in a shell and in Python


def exit_code(server: Server) -> int:
    assert server.process
    return server.process.wait(TIMEOUT)


def test_sigterm_finishes_queued_requests(scripted) -> None:
    """While it drains, the server is alive but not ready, refuses new requests and answers the old ones."""
    server = scripted(batch=1, longest_wait=3000)
    connections = [server.begin_blocked("hold", "term"), server.begin_translate("two")]
    wait_until(lambda: server.metric("queue_size") == 1)
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: server.get("/readyz").status == 503)
    assert server.get("/livez").status == 200
    refused = server.translate("three")
    assert refused.status == 503
    assert refused.error()
    assert int(refused.headers["Retry-After"]) >= 1
    server.release("term")
    responses = [read_response(connection) for connection in connections]
    assert [response.json() for response in responses] == [{"translatedText": "HOLD TERM"}, {"translatedText": "TWO"}]
    assert exit_code(server) in TERMINATED
    assert server.stderr.read_text().count("\n") <= 2  # no traceback


@pytest.mark.parametrize("command", ["hold", "stall"])
def test_shutdown_ends_after_the_grace_period(scripted, command: str) -> None:
    """Requests that are not finished get 503, even if the model never returns."""
    server = scripted(batch=1, grace=1)
    waiting = server.begin_blocked(command, "never")
    server.process.send_signal(signal.SIGTERM)
    assert read_response(waiting).status == 503
    assert exit_code(server) in TERMINATED


def test_second_signal_ends_at_once(scripted) -> None:
    server = scripted(batch=1, grace=3000)
    server.begin_blocked("hold", "never")
    server.process.send_signal(signal.SIGINT)
    wait_until(lambda: server.get("/readyz").status == 503)
    server.process.send_signal(signal.SIGINT)
    assert exit_code(server) in (130, -signal.SIGINT)


def test_sigterm_under_load_truncates_no_response(serve: Serve) -> None:
    """Clients see only 200, 503, 429 and refused connections, and no truncated response."""
    server = serve()
    assert server.process
    outcomes: Counter[str] = Counter()
    stop = threading.Event()
    body = json.dumps({"q": "Tuesday, March 4, 2031\n" * 3, "source": "en", "target": "de"}).encode()

    def request_outcome() -> str:
        try:
            connection = server.begin("POST", "/translate", body, {"Content-Type": "application/json"})
        except OSError:
            return "refused"
        with closing(connection):
            try:
                response = read_response(connection)
            except ConnectionError:  # still in the listen backlog when the socket closed, so nothing was answered
                return "refused"
            except (HTTPException, OSError) as error:
                return repr(error)
        response.json()  # complete
        return str(response.status)

    def client() -> None:
        while not stop.is_set():
            outcomes[request_outcome()] += 1

    with ThreadPoolExecutor(16) as clients:
        for _ in range(16):
            clients.submit(client)
        wait_until(lambda: outcomes["200"] > 50)
        server.process.send_signal(signal.SIGTERM)
        code = exit_code(server)
        wait_until(lambda: outcomes["refused"] > 0)
        stop.set()
    assert code in TERMINATED
    assert set(outcomes) <= {"200", "503", "429", "refused"}, outcomes


# ── errors at startup ─────────────────────────────────────────────────────────────────────────────


StartupError = Callable[..., tuple[int, str]]


@pytest.fixture
def startup_error(tmp_path: Path) -> StartupError:
    """The exit code and the one line on stderr of a server that does not start."""

    def run_command(*arguments: object) -> tuple[int, str]:
        stderr = tmp_path / "stderr"
        code = ForkedProcess(saccade_command, ["serve", *map(str, arguments)], stderr).wait(TIMEOUT)
        message = stderr.read_text("utf-8")
        assert message.count("\n") == 1, message
        assert stdout_beside(stderr).read_text() == ""
        return code, message

    return run_command


def test_port_in_use_is_an_error(run: Path, startup_error: StartupError) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, message = startup_error(run, "--port", taken.getsockname()[1])
    assert code == 1
    assert "--port" in message


def test_unknown_host_is_an_error(run: Path, monkeypatch: pytest.MonkeyPatch, startup_error: StartupError) -> None:
    monkeypatch.setenv("SACCADE_API_KEY", "key")
    code, message = startup_error(run, "--host", "no.such.host.invalid", "--port", "0")
    assert code == 1
    assert "--host" in message


def test_missing_run_is_an_error(tmp_path: Path, startup_error: StartupError) -> None:
    """Also with a language pair, and without any argument."""
    for arguments in ([tmp_path / "none"], [f"en-de={tmp_path / 'nothing'}"], []):
        code, message = startup_error(*arguments)
        assert code in (1, 2)
        assert "run" in message


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_non_loopback_host_requires_keys(run: Path, host: str, startup_error: StartupError) -> None:
    code, message = startup_error(run, "--host", host, "--port", "0")
    assert code in (1, 2)
    assert "--api-keys" in message
    assert "--insecure" in message


def test_empty_or_missing_key_file_is_an_error(run: Path, tmp_path: Path, startup_error: StartupError) -> None:
    empty = tmp_path / "keys"
    empty.write_text("\n")
    for file in (empty, tmp_path / "none"):
        code, message = startup_error(run, "--api-keys", file, "--port", "0")
        assert code in (1, 2)
        assert str(file) in message


def test_two_runs_with_one_name_are_an_error(run: Path, startup_error: StartupError) -> None:
    code, message = startup_error(run, run, "--port", "0")
    assert code in (1, 2)
    assert run.name in message


def test_damaged_run_is_an_error(run: Path, tmp_path: Path, startup_error: StartupError) -> None:
    """The weights do not match the manifest."""
    import shutil

    damaged = Path(shutil.copytree(run, tmp_path / "damaged"))
    for weights in damaged.rglob("*.safetensors"):
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
    code, message = startup_error(damaged, "--port", "0")
    assert code == 1
    assert "damaged" in message
