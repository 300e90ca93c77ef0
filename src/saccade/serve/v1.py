"""Our own API: one route that says all a model knows about a translation, and a list of the models."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from fastapi.routing import APIRoute
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from saccade.serve.errors import ApiError
from saccade.serve.languages import language_name
from saccade.serve.queue import SentenceOutput, TranslationOptions
from saccade.serve.service import Translated, one_line, service_of


def whole_text(text: str) -> str:
    """JSON can hold half a character (a lone surrogate), which no tokenizer can read."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("holds half of a surrogate pair") from None
    return text


RequestText = Annotated[str, AfterValidator(whole_text)]
LanguageCode = Annotated[str, Field(max_length=20), AfterValidator(whole_text)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class TranslateRequest(_Strict):
    """What to translate, and what to say of it."""

    text: RequestText | list[RequestText] = Field(
        description="A text, or several. Each may have many sentences and lines."
    )
    source: LanguageCode | None = Field(
        None, description="A language's code, or auto; left out, what is served is assumed."
    )
    target: LanguageCode | None = Field(None, description="A language's code; left out, what is served is assumed.")
    model: Annotated[str, Field(max_length=200), AfterValidator(whole_text)] | None = Field(
        None, description="A model by name, where several fit."
    )
    alternatives: int = Field(0, ge=0, description="How many other translations of each sentence to give.")
    alignments: bool = Field(False, description="Whether to say which word belongs to which.")
    attention: bool = Field(False, description="Whether to send all attention, as the viewer reads it.")


class ScoredText(BaseModel):
    """A translation and the score it was ranked by: log p / length^penalty. `links` are pairs of word numbers, source
    and target; `attention` is what the viewer reads. Both only if asked for."""

    text: str
    score: float
    links: list[tuple[int, int]] | None
    attention: dict[str, Any] | None


class SentenceTranslation(ScoredText):
    """One sentence of a text."""

    source: str
    alternatives: list[ScoredText]


class TextTranslation(BaseModel):
    """One text. `alternatives` are whole texts."""

    text: str
    alternatives: list[str]
    sentences: list[SentenceTranslation]


class LanguageGuess(BaseModel):
    """A language, and how sure that is, from 0 to 100."""

    language: str
    confidence: int


class TranslateResponse(BaseModel):
    """All translations, in the order of the texts."""

    model: str
    source: str
    target: str
    detected: LanguageGuess | None
    translations: list[TextTranslation]


class ModelFacts(BaseModel):
    """A model that is served."""

    name: str
    source: str
    source_name: str
    target: str
    target_name: str
    examples: list[str]


class ErrorBody(BaseModel):
    """Why there is no translation."""

    error: str


ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": text}
    for status, text in {
        400: "Not possible: a language or model that is not served, or broken JSON.",
        403: "A key is needed, or the page's origin is not allowed.",
        408: "The request came too slowly.",
        413: "Too long.",
        415: "The body's type is not taken.",
        421: "Not a name of this service.",
        422: "A field has the wrong type.",
        429: "Too many wait; Retry-After says when to come again.",
        431: "The head is too long.",
        500: "It failed; the text has the number to ask about.",
        503: "Not in time, or shutting down; Retry-After says when to come again.",
    }.items()
}


def media_type(request: Request) -> str:
    """What the body is, if it is text in UTF-8; other encodings could cost more time than they are worth."""
    kind, _, options = request.headers.get("content-type", "").partition(";")
    charset = options.lower().partition("charset=")[2].partition(";")[0].strip('" ')
    if charset not in ("", "utf-8", "utf8"):
        raise ApiError(415, "the body must be UTF-8")
    return kind.strip().lower()


class JsonRoute(APIRoute):
    """A route that takes JSON and nothing else."""

    def get_route_handler(self) -> Any:
        handler = super().get_route_handler()

        async def checked(request: Request) -> Response:
            if request.method == "POST" and media_type(request) != "application/json":
                raise ApiError(415, "the body must be JSON: send Content-Type: application/json")
            return await handler(request)

        return checked


v1_routes = APIRouter(prefix="/v1", tags=["v1"], route_class=JsonRoute)


@v1_routes.post("/translate", response_model=TranslateResponse, responses=ERROR_RESPONSES)
async def translate(
    ask: TranslateRequest,
    request: Request,
    authorization: Annotated[str | None, Header(description="Bearer KEY")] = None,
) -> Response:
    """Translate texts, with alternatives, scores, alignments and attention."""
    service = service_of(request)
    service.check_key((authorization or "").removeprefix("Bearer "))
    texts = [ask.text] if isinstance(ask.text, str) else ask.text
    wish = TranslationOptions(ask.alternatives, ask.alignments, ask.attention)
    service.check(texts, wish)
    model, detected = service.choose("\n".join(texts), ask.source, ask.target, ask.model)
    found = await service.translate(texts, model, wish, request.state.number)
    answer = {
        "model": model.name,
        "source": model.source,
        "target": model.target,
        "detected": detected and asdict(detected),
        "translations": [_translation(each, ask.alternatives) for each in found],
    }
    # Attention is many thousands of numbers: they are not checked once more on the way out.
    return Response(json.dumps(answer, ensure_ascii=False, allow_nan=False), media_type="application/json")


@v1_routes.get("/models")
async def models(request: Request) -> list[ModelFacts]:
    """The models that are served."""
    return [
        ModelFacts(
            name=model.name,
            source=model.source,
            source_name=language_name(model.source),
            target=model.target,
            target_name=language_name(model.target),
            examples=model.examples,
        )
        for model in service_of(request).registry.models.values()
    ]


def _translation(translated: Translated, alternatives: int) -> dict[str, Any]:
    sentences = zip(translated.pieces.sentences, translated.found, strict=True)
    return {
        "text": translated.text,
        "alternatives": translated.alternatives(alternatives),
        "sentences": [_sentence(source, outputs) for source, outputs in sentences],
    }


def _sentence(source: str, outputs: Sequence[SentenceOutput]) -> dict[str, Any]:
    best, *others = map(_scored, outputs)
    return {"source": source, **best, "alternatives": others}


def _scored(found: SentenceOutput) -> dict[str, Any]:
    output = found.output
    return {"text": one_line(output), "score": output.score, "links": found.links, "attention": found.attention}
