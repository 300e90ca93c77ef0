"""The ASGI application: all routes, the error handlers, and the middleware around them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

import saccade
from saccade.config import suggestion
from saccade.serve import libre, v1
from saccade.serve.errors import ApiError, internal_error
from saccade.serve.middleware import Middleware
from saccade.serve.pages import page_routes
from saccade.serve.service import Service

MAX_NAME_SHOWN = 40  # characters of an unknown field name in an error message


def create_app(service: Service) -> Middleware:
    """Build the ASGI application for a service."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        warm_up = asyncio.create_task(service.warm_up())
        yield
        warm_up.cancel()
        service.queue.close()

    app = FastAPI(
        title="Saccade",
        version=saccade.__version__,
        summary="Translation with your own models.",
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        exception_handlers={
            ApiError: _handle_api_error,
            HTTPException: _handle_http_error,
            RequestValidationError: _handle_invalid_request,
            Exception: _handle_unexpected_error,
        },
    )
    app.state.service = service
    app.include_router(v1.v1_routes)
    app.include_router(libre.libre_routes)
    _add_probes(app, service)
    app.router.routes.extend(page_routes())
    if service.settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(service.settings.cors),
            allow_methods=["GET", "POST"],
            allow_headers=["content-type", "authorization"],
        )
    return Middleware(app, service.settings, service.metrics, frozenset([*app.openapi()["paths"], "/"]))


def _add_probes(app: FastAPI, service: Service) -> None:
    status = {"content": {"application/json": {"schema": {"type": "object"}}}}

    def probe_response(ok: bool, problem: str) -> Response:
        if not ok:
            raise ApiError(503, problem, 1)
        return JSONResponse({"status": "ok"})

    @app.get("/health", tags=["probes"], responses={200: status})
    async def health() -> Response:
        """Whether the server answers requests."""
        return probe_response(True, "")

    @app.get("/livez", tags=["probes"], responses={200: status, 503: v1.ERROR_RESPONSES[503]})
    async def livez() -> Response:
        """Liveness: no model has spent over `--stall` seconds in one decoder step (with CTranslate2: one batch)."""
        return probe_response(service.alive, "a model has stalled; restart the service")

    @app.get("/readyz", tags=["probes"], responses={200: status, 503: v1.ERROR_RESPONSES[503]})
    async def readyz() -> Response:
        """Readiness: every model is warmed up, and the service is not shutting down."""
        return probe_response(service.ready, "not ready: a model is warming up, or the service is shutting down")

    @app.get("/metrics", tags=["probes"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Metrics in Prometheus text format."""
        return Response(service.metrics.exposition(), headers={"content-type": service.metrics.content_type})

    @app.get("/spec", include_in_schema=False)  # where LibreTranslate serves its API description
    async def spec() -> Response:
        return JSONResponse(app.openapi())


# ── error handlers: the response is one sentence; of what the client sent it repeats at most a field name or a language
# code, cut to a few characters ──


async def _handle_api_error(request: Request, error: Any) -> Response:
    request.state.reason = error.reason
    return Response(error.body, error.status, error.headers)


async def _handle_http_error(request: Request, error: Any) -> Response:
    return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)


async def _handle_invalid_request(request: Request, error: Any) -> Response:
    problem = max(error.errors(), key=lambda problem: len(problem["loc"]))  # the item of a list, not the whole list
    if problem["type"] == "json_invalid":
        return await _handle_api_error(request, ApiError(400, "the body is not valid JSON"))
    if tuple(problem["loc"]) == ("body",):
        reason = 'the body must be a JSON object, such as {"text": "Hello"}'
        return await _handle_api_error(request, ApiError(422, reason))
    field = ".".join(
        str(step) for step in problem["loc"][1:] if isinstance(step, int) or step in v1.TranslateRequest.model_fields
    )
    if problem["type"] == "extra_forbidden":
        name = str(problem["loc"][-1])[:MAX_NAME_SHOWN]
        text = f"unknown field {name!r}{suggestion(name, v1.TranslateRequest.model_fields)}"
    else:
        reason = _reason(problem)
        text = f"{field}: {reason}" if field else reason
    return await _handle_api_error(request, ApiError(422, text))


def _reason(problem: Any) -> str:
    if problem["type"] == "missing":
        return "is missing"
    if problem["type"] == "string_type" and problem["loc"][1] == "text" and not isinstance(problem["loc"][-1], int):
        return "must be a string or a list of strings"
    text = problem["msg"].removeprefix("Value error, ")
    return text.replace("Input should be", "must be").replace("String should have", "must have")


async def _handle_unexpected_error(request: Request, error: Exception) -> Response:
    return await _handle_api_error(request, internal_error(request.state.request_id))
