"""The OpenAPI of the service against the service: what schemathesis thinks of, and that every route is described."""

from typing import Any

import pytest
import schemathesis
from hypothesis import given, settings
from schemathesis import GenerationMode
from schemathesis.checks import positive_data_acceptance

from serve.wire import Server

OPERATIONS = [
    ("post", "/translate"),
    ("get", "/languages"),
    ("post", "/detect"),
    ("get", "/health"),
    ("get", "/frontend/settings"),
    ("post", "/v1/translate"),
    ("get", "/v1/models"),
    ("get", "/livez"),
    ("get", "/readyz"),
]


@pytest.fixture(scope="module")
def described(server: Server) -> Any:
    return schemathesis.openapi.from_url(f"{server.address}/openapi.json")


GOOD = [(*operation, GenerationMode.POSITIVE) for operation in OPERATIONS]
BAD = [
    (*operation, GenerationMode.NEGATIVE) for operation in OPERATIONS if operation[0] == "post"
]  # others take nothing


@pytest.mark.parametrize(("method", "path", "mode"), GOOD + BAD)
def test_a_route_keeps_to_its_description(described: Any, method: str, path: str, mode: GenerationMode) -> None:
    """C3 30. That a good request is accepted is not checked: which languages are served no schema can say."""

    @settings(max_examples=40, derandomize=True, deadline=None, database=None)
    @given(described[path][method.upper()].as_strategy(generation_mode=mode))
    def asked(case: schemathesis.Case) -> None:
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    asked()


def test_every_route_is_described(server: Server) -> None:
    paths = server.get("/openapi.json").json()["paths"]
    assert {(method, path) for path, methods in paths.items() for method in methods} >= set(OPERATIONS)
    assert set(paths["/translate"]["post"]["responses"]) >= {"200", "400", "403", "413", "429", "503"}
    carriers = paths["/translate"]["post"]["requestBody"]["content"]
    assert {"application/json", "application/x-www-form-urlencoded"} <= carriers.keys()
