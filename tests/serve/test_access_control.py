"""Access control: Host and Origin headers, API keys, and the paths of static files."""

import os
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve.conftest import Serve
from serve.http_client import JSON, Server

BODY = b'{"q": "May 1, 2001", "source": "en", "target": "de"}'
V1_BODY = b'{"text": "May 1, 2001"}'
ROUTES = {"/translate": BODY, "/detect": BODY, "/v1/translate": V1_BODY}
OTHER_ORIGIN = "https://evil.example"

# ── hosts ─────────────────────────────────────────────────────────────────────────────────────────

UNKNOWN_HOSTS = ["evil.example", "evil.example:5000", "127.0.0.1.evil.example", "evil.example:127.0.0.1"]
UNKNOWN_HOSTS += [
    "127.0.0.1@evil.example",
    "localhost.evil.example",
    "localhost:80:evil",
    "[::1].evil.example",
    "x" * 5000,
]


@pytest.mark.parametrize("host", UNKNOWN_HOSTS)
@pytest.mark.parametrize("path", ["/", "/health", "/languages", "/metrics", "/openapi.json", "/no/such"])
def test_unknown_host_is_421_on_every_path(server: Server, host: str, path: str) -> None:
    response = server.get(path, {"Host": host})
    assert response.status == 421
    assert response.error()


@pytest.mark.parametrize("route", ROUTES)
def test_post_with_unknown_host_is_421(server: Server, route: str) -> None:
    assert server.request("POST", route, ROUTES[route], {**JSON, "Host": "evil.example"}).status == 421


def test_local_hosts_are_allowed(server: Server) -> None:
    for name in ("127.0.0.1", "localhost", "[::1]", "LOCALHOST"):
        assert server.get("/health", {"Host": name}).status == 200
        assert server.get("/health", {"Host": f"{name}:{server.port}"}).status == 200


def test_missing_or_repeated_host_header_is_refused(server: Server) -> None:
    for lines in ("", "Host: evil.example\r\nHost: localhost\r\n", "Host: localhost\r\nHost: evil.example\r\n"):
        with server.connect() as connection:
            connection.sendall(f"GET /health HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode())
            status = connection.makefile("rb").readline().split()[1]
        assert status in (b"400", b"421")


# ── origins ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("origin", [OTHER_ORIGIN, "null", "http://127.0.0.1:1", "http://127.0.0.1.evil.example"])
@pytest.mark.parametrize("route", ROUTES)
def test_post_from_another_origin_is_403(server: Server, route: str, origin: str) -> None:
    """Also with content types that browsers send without a preflight request."""
    for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded"):
        response = server.request("POST", route, ROUTES[route], {"Content-Type": kind, "Origin": origin})
        assert response.status == 403
        assert response.error()


def test_post_from_the_same_origin_is_allowed(server: Server) -> None:
    for name in (f"127.0.0.1:{server.port}", f"localhost:{server.port}"):
        headers = {**JSON, "Host": name, "Origin": f"http://{name}"}
        assert server.request("POST", "/translate", BODY, headers).status == 200


def test_no_cors_headers_by_default(server: Server) -> None:
    for method in ("GET", "OPTIONS"):
        response = server.request(
            method, "/languages", headers={"Origin": OTHER_ORIGIN, "Access-Control-Request-Method": "GET"}
        )
        assert not [name for name in response.headers if name.lower().startswith("access-control")]


# ── a server with keys and CORS ──────────────────────────────────────────────────────────────────────

ALLOWED_ORIGIN = "https://friend.example"


@pytest.fixture(scope="module")
def guarded(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Server:
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("first-key\nsecond-key\n", "utf-8")
    return serve("--api-keys", keys, "--cors", ALLOWED_ORIGIN)


def test_only_valid_keys_are_accepted(guarded: Server) -> None:
    """Valid, invalid and missing keys, as JSON, form and query string."""
    query = "q=May+1%2C+2001&source=en&target=de"
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for key, status in {
        "first-key": 200,
        "second-key": 200,
        "first-ke": 403,
        "first-keyy": 403,
        "": 403,
        "é": 403,
    }.items():
        encoded_key = quote(key)
        fields = {"q": "May 1, 2001", "source": "en", "target": "de", "api_key": key}
        assert guarded.post("/translate", fields).status == status
        assert guarded.post("/detect", fields).status == status
        assert guarded.request("POST", "/translate", f"{query}&api_key={encoded_key}".encode(), form).status == status
        assert guarded.request("POST", f"/translate?{query}&api_key={encoded_key}").status == status
    for missing in (
        guarded.request("POST", "/translate", BODY, JSON),
        guarded.request("POST", "/v1/translate", V1_BODY, JSON),
    ):
        assert missing.status == 403
        assert missing.error()
    bearer = {"Authorization": "Bearer second-key", **JSON}
    assert guarded.request("POST", "/v1/translate", V1_BODY, bearer).status == 200
    for wrong in ("Bearer second-ke", "Bearer", "Basic c2Vjb25kLWtleQ==", "Bearer \xe9"):
        assert guarded.request("POST", "/v1/translate", V1_BODY, {"Authorization": wrong, **JSON}).status == 403
    for wrong in (1, None, ["first-key"], {}, True):
        fields = {"q": "May 1, 2001", "source": "en", "target": "de", "api_key": wrong}
        assert guarded.post("/translate", fields).status in (400, 403)


def test_key_is_checked_before_the_other_fields(guarded: Server) -> None:
    response = guarded.post("/translate", {"q": "a", "source": "zz", "target": "zz"})
    assert response.status == 403


def test_frontend_settings_tell_whether_a_key_is_required(guarded: Server, server: Server) -> None:
    assert guarded.get("/frontend/settings").json()["keyRequired"] is True
    assert server.get("/frontend/settings").json()["keyRequired"] is False


def test_metrics_and_log_contain_no_keys_and_no_texts(guarded: Server) -> None:
    guarded.request("POST", "/translate?q=very+private&source=en&target=de&api_key=first-key")
    assert guarded.stderr
    for text in (guarded.get("/metrics").body.decode(), guarded.stderr.read_text()):
        assert "first-key" not in text
        assert "private" not in text
        assert "May 1" not in text


def test_cors_allows_only_the_given_origin(guarded: Server) -> None:
    preflight_headers = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    preflight = guarded.request("OPTIONS", "/translate", headers={"Origin": ALLOWED_ORIGIN, **preflight_headers})
    assert preflight.status in (200, 204)
    assert preflight.headers["Access-Control-Allow-Origin"] == ALLOWED_ORIGIN
    body = BODY.replace(b"}", b', "api_key": "first-key"}')
    response = guarded.request("POST", "/translate", body, {**JSON, "Origin": ALLOWED_ORIGIN})
    assert response.status == 200
    assert response.headers["Access-Control-Allow-Origin"] == ALLOWED_ORIGIN
    assert "Origin" in response.headers["Vary"]
    for method, headers in (("OPTIONS", preflight_headers), ("POST", JSON)):
        other = guarded.request(method, "/translate", body, {"Origin": OTHER_ORIGIN, **headers})
        assert "Access-Control-Allow-Origin" not in other.headers
    assert guarded.request("POST", "/translate", body, {**JSON, "Origin": OTHER_ORIGIN}).status == 403


# ── paths ─────────────────────────────────────────────────────────────────────────────────────────

PARENT_ENCODINGS = [
    "..",
    "%2e%2e",
    "..%2f",
    "%2e%2e%2f",
    "..%252f",
    "..\\",
    "..%5c",
    "....//",
    ".%00./",
    "%c0%ae%c0%ae/",
    "..;/",
]
PATHS = [
    f"/static/{'/'.join([up] * depth)}/{name}"
    for up in PARENT_ENCODINGS
    for depth in (1, 4, 9)
    for name in ("app.py", "etc/passwd")
]
PATHS += [f"/static/view/{up}/{up}/page.py" for up in PARENT_ENCODINGS]
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
def test_path_traversal_is_refused(server: Server, path: str) -> None:
    response = server.get(path)
    assert response.status in (400, 404)
    assert b"import" not in response.body
    assert b"root:" not in response.body


@pytest.mark.parametrize(
    "path", [b"/static/\x00", b"/static/\xff\xfe", b"static/..", b"/\x7f", b"*", b"http://evil.example/"]
)
def test_invalid_path_bytes_are_refused(server: Server, path: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        data = connection.makefile("rb").read()
    assert not data or data.split()[1] in (b"400", b"404", b"421")


@given(st.lists(st.sampled_from(["..", "/", "%2f", "\\", "%00", "view", "a", ".", "%2e", "~", "static"]), max_size=12))
@settings(max_examples=200, derandomize=True, deadline=None, database=None)
def test_random_paths_are_refused(server: Server, parts: list[str]) -> None:
    assert server.get("/static/" + "".join(parts)).status in (400, 404)


def test_other_files_of_the_package_are_404(server: Server) -> None:
    import saccade.serve

    folder = os.path.dirname(saccade.serve.__file__)
    for name in os.listdir(folder):
        assert server.get(f"/static/{quote(name)}").status == 404


def test_responses_have_security_headers(server: Server) -> None:
    policy = server.get("/").headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert server.get("/translate").headers["X-Content-Type-Options"] == "nosniff"
