"""The LibreTranslate API, so that its clients work unchanged. Fields come as JSON, as a form or in the address."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from saccade.serve.errors import ApiError
from saccade.serve.languages import language_name
from saccade.serve.markup import Markup
from saccade.serve.models import ServedModel
from saccade.serve.queue import TranslationOptions
from saccade.serve.service import Service, service_of
from saccade.serve.v1 import ERROR_RESPONSES, media_type, whole_text

MAX_FORM_FIELDS = 1000
MAX_NUMBER_DIGITS = 9
FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data")


class Fields:
    """The fields of a request, whatever carried them."""

    def __init__(self, values: Mapping[str, Any]):
        self._values = values

    def texts(self, key: str) -> tuple[list[str], bool]:
        """One text or several, and whether they were several."""
        value = self._values.get(key)
        if value is None:
            raise ApiError(400, f"Invalid request: missing {key} parameter")
        many = isinstance(value, list)
        return [_text(key, item) for item in (value if many else [value])], many

    def text(self, key: str, default: str | None = None) -> str:
        value = self._values.get(key)
        value = default if value is None or value == "" else value
        if value is None:
            raise ApiError(400, f"Invalid request: missing {key} parameter")
        return _text(key, value)

    def key(self) -> str:
        """Whatever else a client may send as its key, it is none."""
        value = self._values.get("api_key")
        return value if isinstance(value, str) else ""

    def count(self, key: str) -> int:
        """A whole number; forms send it as text."""
        value = self._values.get(key)
        if value is None or value == "":
            return 0
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= MAX_NUMBER_DIGITS:
            value = int(value)
        if type(value) is not int or value < 0:
            raise ApiError(400, f"Invalid request: {key} parameter is not a whole number")
        return value


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ApiError(400, f"Invalid request: {key} parameter is not a string")
    try:
        return whole_text(value)
    except ValueError as error:
        raise ApiError(400, f"Invalid request: {key} parameter {error}") from None


async def fields_of(request: Request) -> Fields:
    """JSON if it says so, else the form and the address together."""
    kind = media_type(request)
    if kind == "application/json":
        return Fields(_object(await request.body()))
    if kind and kind not in FORM_TYPES and await request.body():
        raise ApiError(415, "the body must be JSON or a form")
    pairs = _pairs(request.scope["query_string"])
    if kind == FORM_TYPES[0]:
        pairs += _pairs(await request.body())
    elif kind == FORM_TYPES[1]:
        pairs += (await request.form(max_fields=MAX_FORM_FIELDS, max_files=0)).multi_items()
    values: dict[str, Any] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return Fields({key: every[0] if len(every) == 1 else every for key, every in values.items()})


def _pairs(encoded: bytes) -> list[tuple[str, Any]]:
    try:
        text = encoded.decode("ascii")
        return list(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FORM_FIELDS))
    except ValueError:
        raise ApiError(400, "Invalid request: the fields are not URL-encoded UTF-8, or too many") from None


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise ApiError(400, "Invalid request: the body is not JSON") from None
    if not isinstance(found, dict):
        raise ApiError(400, "Invalid request: the body is not a JSON object")
    return found


# ── what OpenAPI says of it: the fields are read by hand, because there are three ways to send them ──

_STRING = {"type": "string"}
_GUESS = {
    "type": "object",
    "required": ["confidence", "language"],
    "properties": {"confidence": {"type": "integer"}, "language": _STRING},
}
_KEY = {"description": "A string, where a key is needed; else whatever a client sends."}
_STRINGS = {"type": "array", "items": _STRING}
TRANSLATE_SCHEMA = {
    "type": "object",
    "required": ["q", "source", "target"],
    "properties": {
        "q": {"anyOf": [_STRING, _STRINGS]},
        "source": {**_STRING, "description": "A language's code, or auto."},
        "target": _STRING,
        "format": {"type": ["string", "null"], "enum": ["text", "html", "", None]},
        "alternatives": {"type": ["integer", "null"], "minimum": 0},
        "api_key": _KEY,
    },
}
TRANSLATED_SCHEMA = {
    "type": "object",
    "required": ["translatedText"],
    "properties": {
        "translatedText": {"anyOf": [_STRING, _STRINGS]},
        "detectedLanguage": {"anyOf": [_GUESS, {"type": "array", "items": _GUESS}]},
        "alternatives": {"anyOf": [_STRINGS, {"type": "array", "items": _STRINGS}]},
    },
}
DETECT_SCHEMA = {
    "type": "object",
    "required": ["q"],
    "properties": {"q": {"anyOf": [_STRING, _STRINGS]}, "api_key": _KEY},
}
DETECTED_SCHEMA = {"type": "array", "items": _GUESS}


def _carriers(schema: dict[str, Any]) -> dict[str, Any]:
    kinds = ("application/json", *FORM_TYPES)
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}


def _answer(schema: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    return {200: {"description": "Done.", "content": {"application/json": {"schema": schema}}}}


# ── the routes ──


class Language(BaseModel):
    """A language, and into which others it can be translated."""

    code: str
    name: str
    targets: list[str]


libre_routes = APIRouter(tags=["LibreTranslate"])


@libre_routes.post(
    "/translate", responses=ERROR_RESPONSES | _answer(TRANSLATED_SCHEMA), openapi_extra=_carriers(TRANSLATE_SCHEMA)
)
async def translate(request: Request) -> JSONResponse:
    """Translate a text or a list of texts."""
    service, fields = service_of(request), await fields_of(request)
    service.check_key(fields.key())
    texts, many = fields.texts("q")
    source, target = fields.text("source"), fields.text("target")
    for code in (source, target):
        if code not in ("auto", *service.registry.languages):
            raise ApiError(400, f"{code[:20]} is not supported")
    form = fields.text("format", "text")
    if form not in ("text", "html"):
        raise ApiError(400, "Invalid request: format parameter is neither text nor html")
    wish = TranslationOptions(fields.count("alternatives"))
    service.check(texts, wish)
    chosen = [service.choose(text, source, target) for text in texts]
    found = await _translated(service, texts, [model for model, _ in chosen], wish, form, request.state.number)
    answer: dict[str, Any] = {"translatedText": _one_or_many([text for text, _ in found], many)}
    if source == "auto":
        answer["detectedLanguage"] = _one_or_many([asdict(guess) for _, guess in chosen if guess], many)
    if wish.alternatives:
        answer["alternatives"] = _one_or_many([others for _, others in found], many)
    return JSONResponse(answer)


@libre_routes.post(
    "/detect", responses=ERROR_RESPONSES | _answer(DETECTED_SCHEMA), openapi_extra=_carriers(DETECT_SCHEMA)
)
async def detect(request: Request) -> JSONResponse:
    """The languages a text may be in, the likeliest first."""
    service, fields = service_of(request), await fields_of(request)
    service.check_key(fields.key())
    texts, _ = fields.texts("q")
    service.check(texts)
    return JSONResponse([asdict(guess) for guess in service.detect("\n".join(texts))])


@libre_routes.get("/languages")
async def languages(request: Request) -> list[Language]:
    """Languages, and into which others they can be translated."""
    served = service_of(request).registry
    return [Language(code=code, name=language_name(code), targets=served.targets(code)) for code in served.languages]


@libre_routes.get("/frontend/settings")
async def settings(request: Request) -> dict[str, Any]:
    """What a page should know beforehand."""
    service = service_of(request)
    first = next(iter(service.registry.models.values()))
    return {
        "charLimit": service.settings.characters,
        "alternatives": service.settings.alternatives,
        "frontendTimeout": 500,
        "apiKeys": service.requires_key,
        "keyRequired": service.requires_key,
        "suggestions": False,
        "filesTranslation": False,
        "supportedFilesFormat": [],
        "language": {
            side: {"code": code, "name": language_name(code)}
            for side, code in (("source", first.source), ("target", first.target))
        },
    }


@libre_routes.post("/suggest", include_in_schema=False)
@libre_routes.post("/translate_file", include_in_schema=False)
async def disabled() -> None:
    raise ApiError(403, "this is disabled here")


async def _translated(
    service: Service,
    texts: Sequence[str],
    models: Sequence[ServedModel],
    wish: TranslationOptions,
    form: str,
    number: str,
) -> list[tuple[str, list[str]]]:
    """For each text its translation and the alternatives to it. Texts of one language go through together."""
    marked = [Markup(text) if form == "html" else None for text in texts]
    parts = [mark.texts if mark else [text] for mark, text in zip(marked, texts, strict=True)]
    found: dict[int, tuple[str, list[str]]] = {}

    async def with_model(model: ServedModel) -> None:
        mine = [index for index, each in enumerate(models) if each is model]
        done = iter(await service.translate([part for i in mine for part in parts[i]], model, wish, number))
        for index in mine:
            pieces = [next(done) for _ in parts[index]]
            mark = marked[index]
            if mark:
                found[index] = mark.joined([piece.text for piece in pieces]), []
            else:
                found[index] = pieces[0].text, pieces[0].alternatives(wish.alternatives)

    await asyncio.gather(*(with_model(model) for model in {id(model): model for model in models}.values()))
    return [found[index] for index in range(len(texts))]


def _one_or_many(items: list[Any], many: bool) -> Any:
    return items if many else items[0]
