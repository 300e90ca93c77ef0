"""Who may come in: hosts, origins, keys; and what of the disk can be seen from outside."""

import os
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve.conftest import Serve
from serve.wire import JSON, Server

BODY = b'{"q": "May 1, 2001", "source": "en", "target": "de"}'
OWN = b'{"text": "May 1, 2001"}'
ROUTES = {"/translate": BODY, "/detect": BODY, "/v1/translate": OWN}
FOREIGN = "https://evil.example"

# ── hosts ─────────────────────────────────────────────────────────────────────────────────────────

EVIL_HOSTS = ["evil.example", "evil.example:5000", "127.0.0.1.evil.example", "evil.example:127.0.0.1"]
EVIL_HOSTS += [
    "127.0.0.1@evil.example",
    "localhost.evil.example",
    "localhost:80:evil",
    "[::1].evil.example",
    "x" * 5000,
]


@pytest.mark.parametrize("host", EVIL_HOSTS)
@pytest.mark.parametrize("path", ["/", "/health", "/languages", "/metrics", "/openapi.json", "/no/such"])
def test_a_foreign_host(server: Server, host: str, path: str) -> None:
    """C3 37: DNS rebinding."""
    answer = server.get(path, {"Host": host})
    assert answer.status == 421
    assert answer.error()


@pytest.mark.parametrize("route", ROUTES)
def test_a_foreign_host_that_posts(server: Server, route: str) -> None:
    """C3 37: nothing is translated for it."""
    assert server.ask("POST", route, ROUTES[route], {**JSON, "Host": "evil.example"}).status == 421


def test_hosts_of_this_machine(server: Server) -> None:
    for name in ("127.0.0.1", "localhost", "[::1]", "LOCALHOST"):
        assert server.get("/health", {"Host": name}).status == 200
        assert server.get("/health", {"Host": f"{name}:{server.port}"}).status == 200


def test_no_host_and_two_hosts(server: Server) -> None:
    """C3 37."""
    for lines in ("", "Host: evil.example\r\nHost: localhost\r\n", "Host: localhost\r\nHost: evil.example\r\n"):
        with server.connect() as connection:
            connection.sendall(f"GET /health HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode())
            status = connection.makefile("rb").readline().split()[1]
        assert status in (b"400", b"421")


# ── origins ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("origin", [FOREIGN, "null", "http://127.0.0.1:1", "http://127.0.0.1.evil.example"])
@pytest.mark.parametrize("route", ROUTES)
def test_a_post_from_another_site(server: Server, route: str, origin: str) -> None:
    """C3 37: cross-site POST, with a body that browsers send unasked, too."""
    for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded"):
        answer = server.ask("POST", route, ROUTES[route], {"Content-Type": kind, "Origin": origin})
        assert answer.status == 403
        assert answer.error()


def test_a_post_from_the_own_page(server: Server) -> None:
    for name in (f"127.0.0.1:{server.port}", f"localhost:{server.port}"):
        headers = {**JSON, "Host": name, "Origin": f"http://{name}"}
        assert server.ask("POST", "/translate", BODY, headers).status == 200


def test_cors_is_off_unless_asked_for(server: Server) -> None:
    """The service: no header lets another site read an answer."""
    for method in ("GET", "OPTIONS"):
        answer = server.ask(method, "/languages", headers={"Origin": FOREIGN, "Access-Control-Request-Method": "GET"})
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]


# ── keys and CORS, asked for ──────────────────────────────────────────────────────────────────────

FRIEND = "https://friend.example"


@pytest.fixture(scope="module")
def guarded(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Server:
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("first-key\nsecond-key\n", "utf-8")
    return serve("--api-keys", keys, "--cors", FRIEND)


def test_keys(guarded: Server) -> None:
    """The service: right, wrong and missing keys, by every carrier."""
    fields = "q=May+1%2C+2001&source=en&target=de"
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for key, status in {
        "first-key": 200,
        "second-key": 200,
        "first-ke": 403,
        "first-keyy": 403,
        "": 403,
        "é": 403,
    }.items():
        sent = quote(key)
        asked = {"q": "May 1, 2001", "source": "en", "target": "de", "api_key": key}
        assert guarded.post("/translate", asked).status == status
        assert guarded.post("/detect", asked).status == status
        assert guarded.ask("POST", "/translate", f"{fields}&api_key={sent}".encode(), form).status == status
        assert guarded.ask("POST", f"/translate?{fields}&api_key={sent}").status == status
    for missing in (guarded.ask("POST", "/translate", BODY, JSON), guarded.ask("POST", "/v1/translate", OWN, JSON)):
        assert missing.status == 403
        assert missing.error()
    bearer = {"Authorization": "Bearer second-key", **JSON}
    assert guarded.ask("POST", "/v1/translate", OWN, bearer).status == 200
    for wrong in ("Bearer second-ke", "Bearer", "Basic c2Vjb25kLWtleQ==", "Bearer \xe9"):
        assert guarded.ask("POST", "/v1/translate", OWN, {"Authorization": wrong, **JSON}).status == 403
    for wrong in (1, None, ["first-key"], {}, True):
        asked = {"q": "May 1, 2001", "source": "en", "target": "de", "api_key": wrong}
        assert guarded.post("/translate", asked).status in (400, 403)


def test_keys_are_asked_for_before_anything_else_is_read(guarded: Server) -> None:
    """A stranger learns nothing of the models, and makes the server do nothing."""
    answer = guarded.post("/translate", {"q": "a", "source": "zz", "target": "zz"})
    assert answer.status == 403


def test_a_page_learns_that_a_key_is_needed(guarded: Server, server: Server) -> None:
    assert guarded.get("/frontend/settings").json()["keyRequired"] is True
    assert server.get("/frontend/settings").json()["keyRequired"] is False


def test_keys_and_texts_are_not_shown(guarded: Server) -> None:
    """Conventions B3, C2: no key and no text in metrics or in the log."""
    guarded.ask("POST", "/translate?q=very+private&source=en&target=de&api_key=first-key")
    assert guarded.said
    for text in (guarded.get("/metrics").body.decode(), guarded.said.read_text()):
        assert "first-key" not in text
        assert "private" not in text
        assert "May 1" not in text


def test_cors_where_asked_for(guarded: Server) -> None:
    """The service: the one origin that was named, and no other."""
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    preflight = guarded.ask("OPTIONS", "/translate", headers={"Origin": FRIEND, **asks})
    assert preflight.status in (200, 204)
    assert preflight.headers["Access-Control-Allow-Origin"] == FRIEND
    body = BODY.replace(b"}", b', "api_key": "first-key"}')
    answer = guarded.ask("POST", "/translate", body, {**JSON, "Origin": FRIEND})
    assert answer.status == 200
    assert answer.headers["Access-Control-Allow-Origin"] == FRIEND
    assert "Origin" in answer.headers["Vary"]
    for method, headers in (("OPTIONS", asks), ("POST", JSON)):
        other = guarded.ask(method, "/translate", body, {"Origin": FOREIGN, **headers})
        assert "Access-Control-Allow-Origin" not in other.headers
    assert guarded.ask("POST", "/translate", body, {**JSON, "Origin": FOREIGN}).status == 403


# ── paths ─────────────────────────────────────────────────────────────────────────────────────────

SECRET = "src/saccade/serve/__init__.py"
UP = ["..", "%2e%2e", "..%2f", "%2e%2e%2f", "..%252f", "..\\", "..%5c", "....//", ".%00./", "%c0%ae%c0%ae/", "..;/"]
PATHS = [
    f"/static/{'/'.join([up] * depth)}/{name}" for up in UP for depth in (1, 4, 9) for name in ("app.py", "etc/passwd")
]
PATHS += [f"/static/view/{up}/{up}/page.py" for up in UP]
PATHS += ["/static//etc/passwd", "/static/%2fetc%2fpasswd", "/static/etc/passwd%00.js", "//etc/passwd", "/static/%00"]
PATHS += [
    "/static/C:%5cwindows",
    "/static/file:///etc/passwd",
    "/static/.",
    "/static/",
    "/static",
    "/static/view",
    "/static/%",
]
PATHS += [
    "/static/__init__.py",
    "/static/view/__init__.py",
    f"/static/{'a' * 4000}",
    "/download_file/..%2f..%2fetc%2fpasswd",
]


@pytest.mark.parametrize("path", PATHS)
def test_paths_that_lead_out(server: Server, path: str) -> None:
    """C3 38."""
    answer = server.get(path)
    assert answer.status in (400, 404)
    assert b"import" not in answer.body
    assert b"root:" not in answer.body


@pytest.mark.parametrize(
    "path", [b"/static/\x00", b"/static/\xff\xfe", b"static/..", b"/\x7f", b"*", b"http://evil.example/"]
)
def test_paths_that_are_no_paths(server: Server, path: bytes) -> None:
    """C3 38: raw bytes where a path should be."""
    with server.connect() as connection:
        connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        said = connection.makefile("rb").read()
    assert not said or said.split()[1] in (b"400", b"404", b"421")


@given(st.lists(st.sampled_from(["..", "/", "%2f", "\\", "%00", "view", "a", ".", "%2e", "~", "static"]), max_size=12))
@settings(max_examples=200, derandomize=True, deadline=None, database=None)
def test_paths_at_random(server: Server, parts: list[str]) -> None:
    """C3 38."""
    assert server.get("/static/" + "".join(parts)).status in (400, 404)


def test_no_file_beside_the_served_ones_is_readable(server: Server) -> None:
    """C3 38: links and other kinds of files of the package are not served."""
    import saccade.serve

    folder = os.path.dirname(saccade.serve.__file__)
    for name in os.listdir(folder):
        assert server.get(f"/static/{quote(name)}").status == 404


def test_answers_carry_their_policy(server: Server) -> None:
    """C2: what a page may do is said with every page."""
    policy = server.get("/").headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert server.get("/translate").headers["X-Content-Type-Options"] == "nosniff"
