"""Invalid requests to every route, as JSON, form or query string, get a 4xx with an error text, never a 500."""

import json
import random
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from serve.http_client import FORM, JSON, Response, Server

REFUSED = {400, 413, 414, 415, 422, 431}
VALID = {"/translate": {"q": "May 1, 2001", "source": "en", "target": "de"}, "/detect": {"q": "May 1, 2001"}}
V1_BODY = {"text": "May 1, 2001", "source": "en", "target": "de"}
ROUTES = {**VALID, "/v1/translate": V1_BODY}
TEXT = {"/translate": "q", "/detect": "q", "/v1/translate": "text"}  # the field of the text


def refused(response: Response) -> str:
    assert response.status in REFUSED, (response.status, response.body[:200])
    return response.error()


@pytest.fixture(autouse=True, scope="module")
def alive(server: Server) -> Any:
    """After all tests the server still answers valid requests."""
    yield
    for route, body in ROUTES.items():
        assert server.post(route, body).status == 200


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────────

BODIES = {
    "none": b"",
    "half": b'{"q": "a',
    "null": b"null",
    "list": b"[]",
    "string": b'"text"',
    "number": b"7",
    "not JSON": b"q=a&source=en&target=de",
    "bad UTF-8": b'{"q": "\xff", "text": "\xff", "source": "en", "target": "de"}',
    "a NUL": b"\x00",
    "deep lists": b"[" * 100_000,
    "deep lists that end": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"q":' * 50_000 + b"1" + b"}" * 50_000,
    "a deep text": b'{"q": %b1%b, "text": %b1%b, "source": "en", "target": "de"}' % ((b"[" * 9000, b"]" * 9000) * 2),
    "a huge integer": b'{"q": "a", "text": "a", "source": "en", "target": "de", "alternatives": %b}' % (b"9" * 10_000),
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", BODIES)
def test_malformed_body_is_refused(server: Server, route: str, name: str) -> None:
    response = server.request("POST", route, BODIES[name], JSON)
    if (route, name) == ("/detect", "a huge integer"):
        assert response.status in {200, *REFUSED}  # a field that this route does not read
    else:
        refused(response)


@pytest.mark.parametrize("body", ["", "null", "[]", "3"])
def test_body_of_v1_that_is_no_object_is_refused_with_an_example(server: Server, body: str) -> None:
    response = server.request("POST", "/v1/translate", body.encode(), JSON)
    assert (response.status, response.error()) == (422, 'the body must be a JSON object, such as {"text": "Hello"}')


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"text": 3}, "text: must be a string or a list of strings"),
        ({"text": ["a", 3]}, "text.1: must be a valid string"),
        ({"text": ["\ud800"]}, "text.0: contains a lone surrogate, which is not valid Unicode text"),
        ({"text": "a", "source": "x" * 21}, "source: must have at most 20 characters"),
    ],
)
def test_reason_of_an_invalid_field_names_the_allowed_types(
    server: Server, body: dict[str, object], reason: str
) -> None:
    response = server.request("POST", "/v1/translate", json.dumps(body).encode(), JSON)
    assert (response.status, response.error()) == (422, reason)


INVALID_TEXTS = ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1", "1.5", "true", "null", "{}", '{"a": "b"}']
INVALID_TEXTS += ["[1]", "[null]", '[["a"]]', '["a", 1]', '["a", NaN]', '"\\ud800"', '"a\\udfffb"', '["a", "\\ud800"]']


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("text", INVALID_TEXTS)
def test_text_of_wrong_type_or_invalid_unicode_is_refused(server: Server, route: str, text: str) -> None:
    fields = {name: json.dumps(value) for name, value in ROUTES[route].items()} | {TEXT[route]: text}
    body = "{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}"
    response = server.request("POST", route, body.encode(), JSON)
    refused(response)
    assert b"Traceback" not in response.body


INVALID_FIELDS: list[tuple[str, Any]] = [
    *[
        (field, value)
        for field in ("source", "target")
        for value in (1, True, [], ["en"], {}, "zz", "EN\x00", "en" * 9999)
    ],
    *[("alternatives", value) for value in (-1, 1.5, "x", "1e9", [], {}, float("nan"), float("inf"), 10**9, 10**400)],
]


@pytest.mark.parametrize("route", ["/translate", "/v1/translate"])
@pytest.mark.parametrize(("field", "value"), INVALID_FIELDS, ids=lambda value: str(value)[:20])
def test_field_of_wrong_type_or_value_is_refused(server: Server, route: str, field: str, value: Any) -> None:
    refused(server.post(route, {**ROUTES[route], field: value}))


@pytest.mark.parametrize(
    ("field", "value"),
    [("model", "no such"), ("model", 1), ("model", []), ("alignments", "perhaps"), ("attention", [])],
)
def test_field_of_v1_with_wrong_value_is_refused(server: Server, field: str, value: Any) -> None:
    refused(server.post("/v1/translate", {**V1_BODY, field: value}))


@pytest.mark.parametrize("format_", [1, "xml", None, ["text"]])
def test_unknown_format_is_refused(server: Server, format_: Any) -> None:
    response = server.post("/translate", {**VALID["/translate"], "format": format_})
    assert (response.status == 200) if format_ is None else refused(response)


@pytest.mark.parametrize("field", ["q", "source", "target"])
def test_error_names_the_missing_field(server: Server, field: str) -> None:
    """With the error texts of LibreTranslate."""
    fields = {name: value for name, value in VALID["/translate"].items() if name != field}
    for response in (
        server.post("/translate", fields),
        server.request("POST", "/translate", urlencode(fields).encode(), FORM),
        server.request("POST", f"/translate?{urlencode(fields)}"),
    ):
        assert response.status == 400
        assert response.error() == f"Invalid request: missing {field} parameter"


def test_error_names_the_unsupported_language(server: Server) -> None:
    for fields in ({"target": "zz"}, {"source": "zz"}):
        response = server.post("/translate", {**VALID["/translate"], **fields})
        assert response.status == 400
        assert response.error() == "zz is not supported"


# ── forms and query strings ───────────────────────────────────────────────────────────────────────

INVALID_FORMS = {
    "none": "",
    "no fields": "&&&",
    "only names": "q&source&target",
    "bad UTF-8": "q=%FF&source=en&target=de",
    "a surrogate": "q=%ED%A0%80&source=en&target=de",
    "unknown target": "q=a&source=en&target=zz",
    "alternatives that are no number": "q=a&source=en&target=de&alternatives=x",
    "alternatives NaN": "q=a&source=en&target=de&alternatives=NaN",
    "alternatives 1e400": "q=a&source=en&target=de&alternatives=1e400",
    "alternatives 1e9": "q=a&source=en&target=de&alternatives=1000000000",
    "alternatives below 0": "q=a&source=en&target=de&alternatives=-1",
    "alternatives of many digits": "q=a&source=en&target=de&alternatives=" + "9" * 5000,
    "half a percent": "q=%&source=en&target=%2",
    "a format": "q=a&source=en&target=de&format=xml",
}
VALID_FOR_DETECT = (
    "alternatives",
    "unknown target",
    "half",
    "a format",
    "only names",
)  # /detect ignores all fields but q


@pytest.mark.parametrize("route", VALID)
@pytest.mark.parametrize("name", INVALID_FORMS)
@pytest.mark.parametrize("encoding", ["form", "query"])
def test_invalid_form_or_query_string_is_refused(server: Server, route: str, name: str, encoding: str) -> None:
    fields = INVALID_FORMS[name]
    if encoding == "form":
        response = server.request("POST", route, fields.encode(), FORM)
    else:
        response = server.request("POST", f"{route}?{fields}")
    if route == "/detect" and name.startswith(VALID_FOR_DETECT):
        assert response.status == 200
    else:
        refused(response)


def test_json_form_and_query_string_give_the_same_translation(server: Server) -> None:
    fields = VALID["/translate"]
    responses = [
        server.post("/translate", fields),
        server.request("POST", "/translate", urlencode(fields).encode(), FORM),
        server.request("POST", f"/translate?{urlencode(fields)}"),
        server.request("POST", f"/translate?{urlencode(fields)}", b"", FORM),
    ]
    assert [response.status for response in responses] == [200] * 4
    assert len({response.json()["translatedText"] for response in responses}) == 1


def test_unknown_fields_and_unneeded_keys_are_ignored(server: Server) -> None:
    assert server.post("/translate", {**VALID["/translate"], "apiKey": "x", "api_key": "x", "new": [1]}).status == 200
    assert server.post("/translate", {**VALID["/translate"], "api_key": None}).status == 200


# ── content types ─────────────────────────────────────────────────────────────────────────────────

CONTENT_TYPES = [
    "text/plain",
    "text/html",
    "application/xml",
    "application/octet-stream",
    "application/jsonp",
    "multipart/form-data",
    "multipart/form-data; boundary=",
    "multipart/form-data; boundary=x",
    "application/x-www-form-urlencoded; charset=nonsense",
    "nonsense",
    ";",
    "",
]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("kind", CONTENT_TYPES)
def test_unsupported_content_type_is_refused(server: Server, route: str, kind: str) -> None:
    refused(server.request("POST", route, json.dumps(ROUTES[route]).encode(), {"Content-Type": kind}))


@pytest.mark.parametrize("route", ROUTES)
def test_compressed_body_is_refused(server: Server, route: str) -> None:
    """Without decompression there is no decompression bomb."""
    refused(server.request("POST", route, b"\x1f\x8b\x08\x00", {**JSON, "Content-Encoding": "gzip"}))


# ── methods, paths and random bytes ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("route", [*ROUTES, "/languages", "/health", "/metrics", "/"])
@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE"])
def test_wrong_method_is_405_with_allow_header(server: Server, method: str, route: str) -> None:
    response = server.request(method, route)
    assert response.status == 405
    assert response.error()
    assert response.headers["Allow"]


@pytest.mark.parametrize("route", ROUTES)
def test_get_of_a_post_route_is_405(server: Server, route: str) -> None:
    assert server.get(route).status == 405


def test_unknown_path_is_404(server: Server) -> None:
    response = server.get("/no/such/page")
    assert response.status == 404
    assert response.error()


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_are_refused(server: Server, seed: int) -> None:
    """Random bytes, as body and as query string."""
    generator = random.Random(seed)
    noise = generator.randbytes(generator.randrange(1, 3000))
    for route in ROUTES:
        for headers in (JSON, FORM):
            response = server.request("POST", route, noise, headers)
            assert response.status in REFUSED, response.body
        assert server.request("POST", f"{route}?{quote(noise)}").status in REFUSED
