"""The OpenAPI schema describes every route, and the responses conform to it (with requests from schemathesis)."""

from typing import Any

import pytest
import schemathesis
from hypothesis import given, settings
from schemathesis import GenerationMode
from schemathesis.checks import positive_data_acceptance

from serve.http_client import Server

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
def schema(server: Server) -> Any:
    return schemathesis.openapi.from_url(f"{server.address}/openapi.json")


VALID = [(*operation, GenerationMode.POSITIVE) for operation in OPERATIONS]
INVALID = [
    (*operation, GenerationMode.NEGATIVE) for operation in OPERATIONS if operation[0] == "post"
]  # the GET routes have no parameters


@pytest.mark.parametrize(("method", "path", "mode"), VALID + INVALID)
def test_responses_conform_to_the_schema(schema: Any, method: str, path: str, mode: GenerationMode) -> None:
    """Whether a valid request is accepted is not checked: the schema does not contain the served languages."""

    @settings(max_examples=40, derandomize=True, deadline=None, database=None)
    @given(schema[path][method.upper()].as_strategy(generation_mode=mode))
    def check(case: schemathesis.Case) -> None:
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    check()


def test_every_route_is_in_the_schema(server: Server) -> None:
    paths = server.get("/openapi.json").json()["paths"]
    assert {(method, path) for path, methods in paths.items() for method in methods} >= set(OPERATIONS)
    assert set(paths["/translate"]["post"]["responses"]) >= {"200", "400", "403", "413", "429", "503"}
    media_types = paths["/translate"]["post"]["requestBody"]["content"]
    assert {"application/json", "application/x-www-form-urlencoded"} <= media_types.keys()
