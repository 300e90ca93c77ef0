"""Translates whole texts: split into sentences, translate them through the queue, and join the results."""

import asyncio
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from starlette.requests import Request

from saccade.decode.engine import Output
from saccade.serve.detect import LanguageDetector
from saccade.serve.errors import ApiError
from saccade.serve.metrics import Metrics
from saccade.serve.models import ServedModel
from saccade.serve.queue import DEADLINE_MESSAGE, Queue, QueuedRequest, SentenceOutput, TranslationOptions
from saccade.serve.registry import ModelRegistry, source_languages, target_languages
from saccade.serve.sentences import SplitText, split_sentences
from saccade.serve.settings import Settings
from saccade.serve.throughput import Throughput
from saccade.serve.workers import Worker, worker_count

DEFAULT_OPTIONS = TranslationOptions()


@dataclass(frozen=True)
class DetectedLanguage:
    """A language code with its confidence, 0 to 100."""

    language: str
    confidence: int


@dataclass(frozen=True)
class TranslatedText:
    """A text and the outputs for each of its sentences, best first."""

    source: SplitText
    outputs: Sequence[Sequence[SentenceOutput]]

    @property
    def text(self) -> str:
        return self._joined(0)

    def alternatives(self, count: int) -> list[str]:
        """Up to `count` other translations of the whole text. The n-th takes the n-th alternative of each sentence, or
        the last output of a sentence that has fewer."""
        ranks = max(map(len, self.outputs), default=1)
        texts = [self._joined(rank) for rank in range(min(count + 1, ranks))]
        return [text for text in dict.fromkeys(texts) if text != texts[0]]

    def _joined(self, rank: int) -> str:
        chosen = [outputs[min(rank, len(outputs) - 1)] for outputs in self.outputs]
        return self.source.joined([one_line(sentence.output) for sentence in chosen])


def one_line(output: Output) -> str:
    """The text of an output on one line: a byte-level model may generate line breaks, which would split a sentence."""
    return output.text.replace("\n", " ")


class Service:
    """The models, their queue and workers, and the checks of requests. All routes use it."""

    def __init__(self, models: Sequence[ServedModel], settings: Settings, keys: Sequence[str] = ()):
        self.registry = ModelRegistry(models)
        self.settings, self.metrics = settings, Metrics()
        self._keys = [key.encode() for key in keys]
        self._detector = LanguageDetector(self.registry.languages)
        self._throughput = Throughput()
        self._workers: list[Worker] = []
        self.queue = Queue(settings, worker_count(), self._throughput, self.metrics)
        self._warm = False

    # ── startup and state ──

    def start(self) -> None:
        """Start the worker threads. Needs a running event loop."""
        threads = max(1, torch.get_num_threads() // worker_count())
        loop = asyncio.get_running_loop()
        self._workers = [
            Worker(self.queue, self._throughput, self.metrics, loop, threads) for _ in range(worker_count())
        ]

    async def warm_up(self) -> None:
        """Translate a full batch and a single sentence with every model, which also measures their throughput."""
        for model in self.registry.models.values():
            sentence = (model.examples or ["1"])[0]
            tokens = model.count_tokens(sentence)
            for count in (min(self.settings.batch, self.settings.queue), 1):
                request = self._queued_request(model, DEFAULT_OPTIONS, [sentence] * count, [tokens] * count, "warm-up")
                try:
                    self.queue.submit(request)
                    await request.result
                except ApiError:  # the worker has logged the cause; the service stays up but is never ready
                    return
        self._warm = True

    @property
    def ready(self) -> bool:
        return self._warm and not self.queue.draining

    @property
    def alive(self) -> bool:
        return not any(worker.has_stalled(self.settings.stall) for worker in self._workers)

    # ── requests ──

    @property
    def requires_key(self) -> bool:
        return bool(self._keys)

    def check_key(self, key: str | None) -> None:
        """Refuse a request without a valid API key. The key is compared with all valid ones, each in constant time."""
        given = (key or "").encode("utf-8", "surrogatepass")
        if self._keys and sum(hmac.compare_digest(given, valid) for valid in self._keys) == 0:
            raise ApiError(403, "missing or invalid API key; ask whoever runs this service for one", reason="key")

    def check_size(self, texts: Sequence[str], options: TranslationOptions = DEFAULT_OPTIONS) -> None:
        """Refuse a request over the limits on texts, characters, alternatives or attention."""
        length, limits = sum(map(len, texts)), self.settings
        if len(texts) > limits.texts:
            raise ApiError(413, f"the request has {len(texts):,} texts; at most {limits.texts:,} are allowed")
        if length > limits.characters:
            raise ApiError(413, f"the request has {length:,} characters; at most {limits.characters:,} are allowed")
        if options.alternatives > limits.alternatives:
            raise ApiError(400, f"alternatives: at most {limits.alternatives} are allowed")
        if options.attention and length > limits.attention_characters:
            raise ApiError(400, f"attention: the text may have at most {limits.attention_characters:,} characters")

    def detect(self, text: str, codes: Sequence[str] | None = None) -> list[DetectedLanguage]:
        """The languages `codes` (default: all served source languages) with their confidence, the most likely first."""
        candidates = codes or source_languages(self.registry.models.values())
        return [DetectedLanguage(code, confidence) for code, confidence in self._detector.rank(text, candidates)]

    def choose_model(
        self, text: str, source: str | None, target: str | None, name: str | None = None
    ) -> tuple[ServedModel, DetectedLanguage | None]:
        """The model for a request, and the detected source language. The language is detected if `source` is "auto",
        or if it is missing and several are possible; otherwise the second value is None."""
        models = self.registry.matching(None if source == "auto" else source, target, name)
        targets, sources = target_languages(models), source_languages(models)
        detected = None
        if source == "auto" or len(sources) > 1:
            detected = self.detect(text, sources)[0]
            models = [model for model in models if model.source == detected.language]
            targets = [code for code in targets if any(model.target == code for model in models)]
        if len(targets) > 1:
            raise ApiError(400, f"target: several languages are possible; choose one of {', '.join(targets)}")
        return models[0], detected

    async def translate(
        self, texts: Sequence[str], model: ServedModel, options: TranslationOptions, request_id: str
    ) -> list[TranslatedText]:
        """Translate texts within the deadline; the results are in their order."""
        if not self._warm:
            raise ApiError(503, "the service is starting; try again later", 1, "starting")
        max_tokens = min(self.settings.tokens, model.max_tokens)
        sources = [split_sentences(text, model.count_tokens, max_tokens) for text in texts]
        sentences = [sentence for source in sources for sentence in source.sentences]
        token_counts = [tokens for source in sources for tokens in source.token_counts]
        if len(sentences) > self.settings.queue:
            text = f"the request has {len(sentences):,} sentences; at most {self.settings.queue:,} are allowed"
            raise ApiError(413, text)
        self.metrics.tokens.labels("source").inc(sum(token_counts))
        outputs = iter(())
        if sentences:
            outputs = iter(await self._run(self._queued_request(model, options, sentences, token_counts, request_id)))
        return [TranslatedText(source, [next(outputs) for _ in source.sentences]) for source in sources]

    def _queued_request(
        self,
        model: ServedModel,
        options: TranslationOptions,
        sentences: Sequence[str],
        token_counts: Sequence[int],
        request_id: str,
    ) -> QueuedRequest:
        width = model.beam_width(options.alternatives)
        sizes = [(tokens + 1) * width for tokens in token_counts]  # + 1: the end symbol
        result = asyncio.get_running_loop().create_future()
        return QueuedRequest(model, options, sentences, sizes, request_id, result)

    async def _run(self, request: QueuedRequest) -> list[list[SentenceOutput]]:
        """Submit a request and wait for its result until the deadline."""
        self.queue.submit(request)
        try:
            async with asyncio.timeout(self.settings.deadline):
                return await request.result
        except TimeoutError:
            raise ApiError(503, DEADLINE_MESSAGE, 1, "deadline_missed") from None
        finally:
            self.queue.cancel(request)


def service_of(request: Request) -> Service:
    return request.app.state.service
