"""The application: all routes, what they say when something is wrong, and the border round them."""

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
from saccade.serve import libre, v1
from saccade.serve.errors import ApiError, internal_error
from saccade.serve.middleware import Middleware
from saccade.serve.pages import page_routes
from saccade.serve.service import Service


def application(service: Service) -> Middleware:
    """An ASGI application that serves these models."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        warming = asyncio.create_task(service.warm_up())
        yield
        warming.cancel()
        service.queue.close()

    app = FastAPI(
        title="Saccade",
        version=saccade.__version__,
        summary="Translation by models of your own.",
        lifespan=life,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        exception_handlers={
            ApiError: _refused,
            HTTPException: _http,
            RequestValidationError: _invalid,
            Exception: _crashed,
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

    def answered(good: bool, why: str) -> Response:
        if not good:
            raise ApiError(503, why, 1)
        return JSONResponse({"status": "ok"})

    @app.get("/health", tags=["probes"], responses={200: status})
    async def health() -> Response:
        """Whether someone is there."""
        return answered(True, "")

    @app.get("/livez", tags=["probes"], responses={200: status, 503: v1.ERROR_RESPONSES[503]})
    async def livez() -> Response:
        """Whether the models move."""
        return answered(service.alive, "a model has stalled")

    @app.get("/readyz", tags=["probes"], responses={200: status, 503: v1.ERROR_RESPONSES[503]})
    async def readyz() -> Response:
        """Whether requests should be sent here: every model has translated something, and nobody shuts down."""
        return answered(service.ready, "not ready")

    @app.get("/metrics", tags=["probes"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(service.metrics.page(), headers={"content-type": service.metrics.content_type})

    @app.get("/spec", include_in_schema=False)
    async def spec() -> Response:
        return JSONResponse(app.openapi())


# ── what is said when something is wrong: one sentence, and never what the client sent ──


async def _refused(request: Request, refusal: Any) -> Response:
    request.state.reason = refusal.reason
    return Response(refusal.body, refusal.status, refusal.headers)


async def _http(request: Request, error: Any) -> Response:
    return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)


async def _invalid(request: Request, error: Any) -> Response:
    wrong = error.errors()[0]
    if wrong["type"] == "json_invalid":
        return await _refused(request, ApiError(400, "the body is not JSON"))
    place = ".".join(
        str(step) for step in wrong["loc"][1:] if isinstance(step, int) or step in v1.TranslateRequest.model_fields
    )
    return await _refused(request, ApiError(422, f"{place}: {wrong['msg']}" if place else wrong["msg"]))


async def _crashed(request: Request, error: Exception) -> Response:
    return await _refused(request, internal_error(request.state.number))
