"""Saccade's own API: translations with scores, alternatives, alignments and attention, and the list of models."""

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
from saccade.serve.service import DetectedLanguage, TranslatedText, one_line, service_of


def check_surrogates(text: str) -> str:
    """Refuse text with a lone surrogate: JSON can escape one, but no tokenizer can encode it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("contains a lone surrogate, which is not valid Unicode text") from None
    return text


RequestText = Annotated[str, AfterValidator(check_surrogates)]
LanguageCode = Annotated[str, Field(max_length=20), AfterValidator(check_surrogates)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class TranslateRequest(_Strict):
    """The texts to translate, and what to return besides the translations."""

    text: RequestText | list[RequestText] = Field(
        description="A text or a list of texts. Each may have several sentences and lines."
    )
    source: LanguageCode | None = Field(
        None, description="Language code, or auto. May be left out; if several fit, the language is detected."
    )
    target: LanguageCode | None = Field(
        None, description="Language code. May be left out if only one target language fits."
    )
    model: Annotated[str, Field(max_length=200), AfterValidator(check_surrogates)] | None = Field(
        None, description="Name of the model. Without it, the first model for the language pair is used."
    )
    alternatives: int = Field(0, ge=0, description="Number of alternative translations of each sentence.")
    alignments: bool = Field(False, description="Return the word alignment of each translation.")
    attention: bool = Field(False, description="Return all attention weights, in the format of the attention viewer.")


class ScoredText(BaseModel):
    """A translation and its score, log p / length^penalty. `alignment` is a list of pairs of word indices (source,
    target); `attention` has the format of the attention viewer. Both are null unless requested."""

    text: str
    score: float
    alignment: list[tuple[int, int]] | None
    attention: dict[str, Any] | None


class SentenceTranslation(ScoredText):
    """One sentence of a text: `source` is the sentence itself (elsewhere in the API it is a language code), `text` its
    best translation, `alternatives` the next ones."""

    source: str
    alternatives: list[ScoredText]


class TextTranslation(BaseModel):
    """The translation of one text. `alternatives` are other translations of the whole text."""

    text: str
    alternatives: list[str]
    sentences: list[SentenceTranslation]


class TranslateResponse(BaseModel):
    """The translations, in the order of the texts."""

    model: str
    source: str
    target: str
    detected: DetectedLanguage | None
    translations: list[TextTranslation]


class ModelFacts(BaseModel):
    """A served model."""

    name: str
    source: str
    source_name: str
    target: str
    target_name: str
    examples: list[str]


class ErrorBody(BaseModel):
    """The response to a request that failed."""

    error: str


ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": text}
    for status, text in {
        400: "An unknown language or model, or invalid JSON.",
        403: "Missing or invalid API key, or the page's origin is not allowed.",
        408: "Timeout while receiving the request.",
        413: "The request is too large.",
        415: "The body's content type or encoding is not supported.",
        421: "The Host header is not an allowed name.",
        422: "A field has the wrong type or value.",
        429: "The queue is full; try again after Retry-After seconds.",
        431: "The request head is too long.",
        500: "Internal error; the text contains a request id that is also in the service's log.",
        503: "Overloaded, starting or shutting down; try again after Retry-After seconds.",
    }.items()
}


def media_type(request: Request) -> str:
    """The media type of the body. Its charset must be UTF-8: decoding some other ones can take very long."""
    kind, _, options = request.headers.get("content-type", "").partition(";")
    charset = options.lower().partition("charset=")[2].partition(";")[0].strip('" ')
    if charset not in ("", "utf-8", "utf8"):
        raise ApiError(415, "the body must be UTF-8")
    return kind.strip().lower()


class JsonRoute(APIRoute):
    """A route whose body must be JSON."""

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
    body: TranslateRequest,
    request: Request,
    authorization: Annotated[str | None, Header(description="Bearer KEY")] = None,
) -> Response:
    """Translate texts, with alternatives, scores, alignments and attention."""
    service = service_of(request)
    service.check_key((authorization or "").removeprefix("Bearer "))
    texts = [body.text] if isinstance(body.text, str) else body.text
    options = TranslationOptions(body.alternatives, body.alignments, body.attention)
    service.check_size(texts, options)
    model, detected = service.choose_model("\n".join(texts), body.source, body.target, body.model)
    translations = await service.translate(texts, model, options, request.state.request_id)
    response = {
        "model": model.name,
        "source": model.source,
        "target": model.target,
        "detected": detected and asdict(detected),
        "translations": [_translation(text, body.alternatives) for text in translations],
    }
    # A plain Response: FastAPI would validate the many thousands of attention weights once more.
    return Response(json.dumps(response, ensure_ascii=False, allow_nan=False), media_type="application/json")


@v1_routes.get("/models")
async def models(request: Request) -> list[ModelFacts]:
    """The served models."""
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


def _translation(translation: TranslatedText, alternatives: int) -> dict[str, Any]:
    sentences = zip(translation.source.sentences, translation.outputs, strict=True)
    return {
        "text": translation.text,
        "alternatives": translation.alternatives(alternatives),
        "sentences": [_sentence(source, outputs) for source, outputs in sentences],
    }


def _sentence(source: str, outputs: Sequence[SentenceOutput]) -> dict[str, Any]:
    best, *others = map(_scored_text, outputs)
    return {"source": source, **best, "alternatives": others}


def _scored_text(sentence: SentenceOutput) -> dict[str, Any]:
    output = sentence.output
    return {
        "text": one_line(output),
        "score": output.score,
        "alignment": sentence.alignment,
        "attention": sentence.attention,
    }
