"""The LibreTranslate API, compatible with its clients. Fields may come as JSON, as a form or in the query string."""

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
from saccade.serve.v1 import ERROR_RESPONSES, check_surrogates, media_type

MAX_FORM_FIELDS = 1000
MAX_NUMBER_DIGITS = 9
FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data")


class Fields:
    """The fields of a request, from JSON, a form or the query string."""

    def __init__(self, values: Mapping[str, Any]):
        self._values = values

    def texts(self, key: str) -> tuple[list[str], bool]:
        """The texts of a field, and whether it is a list."""
        value = self._values.get(key)
        if value is None:
            raise ApiError(400, f"Invalid request: missing {key} parameter")
        is_list = isinstance(value, list)
        return [_text(key, item) for item in (value if is_list else [value])], is_list

    def text(self, key: str, default: str | None = None) -> str:
        value = self._values.get(key)
        value = default if value is None or value == "" else value
        if value is None:
            raise ApiError(400, f"Invalid request: missing {key} parameter")
        return _text(key, value)

    def key(self) -> str:
        """The API key; anything but a string counts as no key."""
        value = self._values.get("api_key")
        return value if isinstance(value, str) else ""

    def count(self, key: str) -> int:
        """A natural number, 0 by default. Forms send it as text."""
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
        return check_surrogates(value)
    except ValueError as error:
        raise ApiError(400, f"Invalid request: {key} parameter {error}") from None


async def fields_of(request: Request) -> Fields:
    """The fields from JSON if that is the content type, else from the query string and the form together."""
    content_type = media_type(request)
    if content_type == "application/json":
        return Fields(_object(await request.body()))
    if content_type and content_type not in FORM_TYPES and await request.body():
        raise ApiError(415, "the body must be JSON or a form")
    pairs = _pairs(request.scope["query_string"])
    if content_type == FORM_TYPES[0]:
        pairs += _pairs(await request.body())
    elif content_type == FORM_TYPES[1]:
        pairs += (await request.form(max_fields=MAX_FORM_FIELDS, max_files=0)).multi_items()
    values: dict[str, Any] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return Fields({key: items[0] if len(items) == 1 else items for key, items in values.items()})


def _pairs(encoded: bytes) -> list[tuple[str, Any]]:
    try:
        text = encoded.decode("ascii")
        return list(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FORM_FIELDS))
    except ValueError:
        raise ApiError(400, "Invalid request: the fields are not URL-encoded UTF-8, or there are too many") from None


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise ApiError(400, "Invalid request: the body is not JSON") from None
    if not isinstance(value, dict):
        raise ApiError(400, "Invalid request: the body is not a JSON object")
    return value


# ── the OpenAPI schema, by hand: FastAPI cannot describe fields that may come in three ways ──

_STRING = {"type": "string"}
_DETECTED_LANGUAGE = {
    "type": "object",
    "required": ["confidence", "language"],
    "properties": {"confidence": {"type": "integer"}, "language": _STRING},
}
_KEY = {"description": "A string if the service requires API keys; otherwise ignored."}
_STRINGS = {"type": "array", "items": _STRING}
TRANSLATE_SCHEMA = {
    "type": "object",
    "required": ["q", "source", "target"],
    "properties": {
        "q": {"anyOf": [_STRING, _STRINGS]},
        "source": {**_STRING, "description": "Language code, or auto."},
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
        "detectedLanguage": {"anyOf": [_DETECTED_LANGUAGE, {"type": "array", "items": _DETECTED_LANGUAGE}]},
        "alternatives": {"anyOf": [_STRINGS, {"type": "array", "items": _STRINGS}]},
    },
}
DETECT_SCHEMA = {
    "type": "object",
    "required": ["q"],
    "properties": {"q": {"anyOf": [_STRING, _STRINGS]}, "api_key": _KEY},
}
DETECTED_SCHEMA = {"type": "array", "items": _DETECTED_LANGUAGE}


def _request_body(schema: dict[str, Any]) -> dict[str, Any]:
    media_types = ("application/json", *FORM_TYPES)
    content = {media_type: {"schema": schema} for media_type in media_types}
    return {"requestBody": {"required": True, "content": content}}


def _responses(schema: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    ok = {"description": "Success.", "content": {"application/json": {"schema": schema}}}
    return {**ERROR_RESPONSES, 200: ok}


# ── the routes ──


class Language(BaseModel):
    """A language, and the languages it can be translated into."""

    code: str
    name: str
    targets: list[str]


libre_routes = APIRouter(tags=["LibreTranslate"])


@libre_routes.post("/translate", responses=_responses(TRANSLATED_SCHEMA), openapi_extra=_request_body(TRANSLATE_SCHEMA))
async def translate(request: Request) -> JSONResponse:
    """Translate a text or a list of texts."""
    service, fields = await _authorized(request)
    texts, is_list = fields.texts("q")
    source, target = fields.text("source"), fields.text("target")
    for code in (source, target):
        if code not in ("auto", *service.registry.languages):
            raise ApiError(400, f"{code[:20]} is not supported")
    text_format = fields.text("format", "text")
    if text_format not in ("text", "html"):
        raise ApiError(400, "Invalid request: format parameter is neither text nor html")
    options = TranslationOptions(fields.count("alternatives"))
    service.check_size(texts, options)
    chosen = [service.choose_model(text, source, target) for text in texts]
    models, request_id = [model for model, _ in chosen], request.state.request_id
    translations = await _translations(service, texts, models, options, text_format, request_id)
    response: dict[str, Any] = {"translatedText": _list_or_single([text for text, _ in translations], is_list)}
    if source == "auto":
        response["detectedLanguage"] = _list_or_single(
            [asdict(language) for _, language in chosen if language], is_list
        )
    if options.alternatives:
        response["alternatives"] = _list_or_single([alternatives for _, alternatives in translations], is_list)
    return JSONResponse(response)


@libre_routes.post("/detect", responses=_responses(DETECTED_SCHEMA), openapi_extra=_request_body(DETECT_SCHEMA))
async def detect(request: Request) -> JSONResponse:
    """The possible languages of a text, the most likely first."""
    service, fields = await _authorized(request)
    texts, _ = fields.texts("q")
    service.check_size(texts)
    return JSONResponse([asdict(language) for language in service.detect("\n".join(texts))])


@libre_routes.get("/languages")
async def languages(request: Request) -> list[Language]:
    """The languages, and the languages each can be translated into."""
    registry = service_of(request).registry
    return [
        Language(code=code, name=language_name(code), targets=registry.targets_of(code)) for code in registry.languages
    ]


@libre_routes.get("/frontend/settings")
async def settings(request: Request) -> dict[str, Any]:
    """The limits and features that a client needs to know."""
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
    raise ApiError(403, "this service does not support suggestions or the translation of files")


async def _authorized(request: Request) -> tuple[Service, Fields]:
    """The service and the request's fields, after checking the API key."""
    service, fields = service_of(request), await fields_of(request)
    service.check_key(fields.key())
    return service, fields


async def _translations(
    service: Service,
    texts: Sequence[str],
    models: Sequence[ServedModel],
    options: TranslationOptions,
    text_format: str,
    request_id: str,
) -> list[tuple[str, list[str]]]:
    """The translation of each text with its model, and the alternatives (none for HTML). The texts of one model are
    translated together."""
    markups = [Markup(text) if text_format == "html" else None for text in texts]
    parts = [markup.texts if markup else [text] for markup, text in zip(markups, texts, strict=True)]
    results: dict[int, tuple[str, list[str]]] = {}

    async def translate_with(model: ServedModel) -> None:
        indices = [index for index, chosen in enumerate(models) if chosen is model]
        model_parts = [part for index in indices for part in parts[index]]
        translated = iter(await service.translate(model_parts, model, options, request_id))
        for index in indices:
            part_results = [next(translated) for _ in parts[index]]
            markup = markups[index]
            if markup:
                results[index] = markup.joined([part.text for part in part_results]), []
            else:
                results[index] = part_results[0].text, part_results[0].alternatives(options.alternatives)

    await asyncio.gather(*(translate_with(model) for model in {id(model): model for model in models}.values()))
    return [results[index] for index in range(len(texts))]


def _list_or_single(items: list[Any], is_list: bool) -> Any:
    return items if is_list else items[0]
