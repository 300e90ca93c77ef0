"""Bad requests, one by one, by every route and every carrier: a sentence that says so, never a 500."""

import json
import random
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from serve.wire import FORM, JSON, Answer, Server

REFUSED = {400, 413, 414, 415, 422, 431}
GOOD = {"/translate": {"q": "May 1, 2001", "source": "en", "target": "de"}, "/detect": {"q": "May 1, 2001"}}
OWN = {"text": "May 1, 2001", "source": "en", "target": "de"}
ROUTES = {**GOOD, "/v1/translate": OWN}
TEXT = {"/translate": "q", "/detect": "q", "/v1/translate": "text"}  # what a route calls the text


def refused(answer: Answer) -> str:
    assert answer.status in REFUSED, (answer.status, answer.body[:200])
    return answer.error()


@pytest.fixture(autouse=True, scope="module")
def alive(server: Server) -> Any:
    """Whatever was asked, the server goes on."""
    yield
    for route, good in ROUTES.items():
        assert server.post(route, good).status == 200


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────────

BYTES = {
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
@pytest.mark.parametrize("name", BYTES)
def test_bodies_that_are_no_json_object(server: Server, route: str, name: str) -> None:
    """C3 29, 30: broken, deep and foreign JSON."""
    answer = server.ask("POST", route, BYTES[name], JSON)
    if (route, name) == ("/detect", "a huge integer"):
        assert answer.status in {200, *REFUSED}  # a field that this route does not read
    else:
        refused(answer)


WRONG_TEXTS = ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1", "1.5", "true", "null", "{}", '{"a": "b"}']
WRONG_TEXTS += ["[1]", "[null]", '[["a"]]', '["a", 1]', '["a", NaN]', '"\\ud800"', '"a\\udfffb"', '["a", "\\ud800"]']


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("text", WRONG_TEXTS)
def test_texts_of_a_wrong_type(server: Server, route: str, text: str) -> None:
    """A 12, 13; C3 30: NaN, 1e400, wrong types, a lone surrogate."""
    fields = {name: json.dumps(value) for name, value in ROUTES[route].items()} | {TEXT[route]: text}
    body = "{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}"
    answer = server.ask("POST", route, body.encode(), JSON)
    refused(answer)
    assert b"Traceback" not in answer.body


WRONG_FIELDS: list[tuple[str, Any]] = [
    *[
        (field, value)
        for field in ("source", "target")
        for value in (1, True, [], ["en"], {}, "zz", "EN\x00", "en" * 9999)
    ],
    *[("alternatives", value) for value in (-1, 1.5, "x", "1e9", [], {}, float("nan"), float("inf"), 10**9, 10**400)],
]


@pytest.mark.parametrize("route", ["/translate", "/v1/translate"])
@pytest.mark.parametrize(("field", "value"), WRONG_FIELDS, ids=lambda value: str(value)[:20])
def test_fields_of_a_wrong_type_or_value(server: Server, route: str, field: str, value: Any) -> None:
    """C3 29, 30: alternatives 1e9, NaN, wrong types."""
    refused(server.post(route, {**ROUTES[route], field: value}))


@pytest.mark.parametrize(
    ("field", "value"),
    [("model", "no such"), ("model", 1), ("model", []), ("alignments", "perhaps"), ("attention", [])],
)
def test_fields_of_our_own_route(server: Server, field: str, value: Any) -> None:
    refused(server.post("/v1/translate", {**OWN, field: value}))


@pytest.mark.parametrize("format_", [1, "xml", None, ["text"]])
def test_a_format_that_is_not_known(server: Server, format_: Any) -> None:
    answer = server.post("/translate", {**GOOD["/translate"], "format": format_})
    assert (answer.status == 200) if format_ is None else refused(answer)


@pytest.mark.parametrize("field", ["q", "source", "target"])
def test_a_field_that_is_missing_is_named(server: Server, field: str) -> None:
    """The sentences that other servers of this API give."""
    fields = {name: value for name, value in GOOD["/translate"].items() if name != field}
    for answer in (
        server.post("/translate", fields),
        server.ask("POST", "/translate", urlencode(fields).encode(), FORM),
        server.ask("POST", f"/translate?{urlencode(fields)}"),
    ):
        assert answer.status == 400
        assert answer.error() == f"Invalid request: missing {field} parameter"


def test_a_language_that_is_not_served_is_named(server: Server) -> None:
    for fields in ({"target": "zz"}, {"source": "zz"}):
        answer = server.post("/translate", {**GOOD["/translate"], **fields})
        assert answer.status == 400
        assert answer.error() == "zz is not supported"


# ── forms and query strings ───────────────────────────────────────────────────────────────────────

WRONG_FORMS = {
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
DETECTED_ALL_THE_SAME = ("alternatives", "unknown target", "half", "a format", "only names")  # /detect reads q alone


@pytest.mark.parametrize("route", GOOD)
@pytest.mark.parametrize("name", WRONG_FORMS)
@pytest.mark.parametrize("carrier", ["form", "query"])
def test_wrong_forms(server: Server, route: str, name: str, carrier: str) -> None:
    """C3 30 by the other two carriers."""
    fields = WRONG_FORMS[name]
    if carrier == "form":
        answer = server.ask("POST", route, fields.encode(), FORM)
    else:
        answer = server.ask("POST", f"{route}?{fields}")
    if route == "/detect" and name.startswith(DETECTED_ALL_THE_SAME):
        assert answer.status == 200
    else:
        refused(answer)


def test_the_three_carriers_agree(server: Server) -> None:
    fields = GOOD["/translate"]
    answers = [
        server.post("/translate", fields),
        server.ask("POST", "/translate", urlencode(fields).encode(), FORM),
        server.ask("POST", f"/translate?{urlencode(fields)}"),
        server.ask("POST", f"/translate?{urlencode(fields)}", b"", FORM),
    ]
    assert [answer.status for answer in answers] == [200] * 4
    assert len({answer.json()["translatedText"] for answer in answers}) == 1


def test_unknown_fields_and_keys_that_nobody_asked_for_are_left_alone(server: Server) -> None:
    assert server.post("/translate", {**GOOD["/translate"], "apiKey": "x", "api_key": "x", "new": [1]}).status == 200
    assert server.post("/translate", {**GOOD["/translate"], "api_key": None}).status == 200


# ── content types ─────────────────────────────────────────────────────────────────────────────────

TYPES = [
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
@pytest.mark.parametrize("kind", TYPES)
def test_wrong_content_types(server: Server, route: str, kind: str) -> None:
    """C3 30."""
    refused(server.ask("POST", route, json.dumps(ROUTES[route]).encode(), {"Content-Type": kind}))


@pytest.mark.parametrize("route", ROUTES)
def test_an_encoded_body(server: Server, route: str) -> None:
    """C3 29: nobody unpacks a bomb who unpacks nothing."""
    refused(server.ask("POST", route, b"\x1f\x8b\x08\x00", {**JSON, "Content-Encoding": "gzip"}))


# ── methods, and noise ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("route", [*ROUTES, "/languages", "/health", "/metrics", "/"])
@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE"])
def test_wrong_methods(server: Server, method: str, route: str) -> None:
    answer = server.ask(method, route)
    assert answer.status == 405
    assert answer.error()
    assert answer.headers["Allow"]


@pytest.mark.parametrize("route", ROUTES)
def test_a_route_that_wants_a_post_says_so(server: Server, route: str) -> None:
    assert server.get(route).status == 405


def test_no_such_page(server: Server) -> None:
    answer = server.get("/no/such/page")
    assert answer.status == 404
    assert answer.error()


@pytest.mark.parametrize("seed", range(20))
def test_noise(server: Server, seed: int) -> None:
    """C3 30: bytes at random, as body and as query."""
    drawn = random.Random(seed)
    noise = drawn.randbytes(drawn.randrange(1, 3000))
    for route in ROUTES:
        for headers in (JSON, FORM):
            answer = server.ask("POST", route, noise, headers)
            assert answer.status in REFUSED, answer.body
        assert server.ask("POST", f"{route}?{quote(noise)}").status in REFUSED
