"""A request from text to text: into sentences, through the queue, together again."""

import asyncio
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from starlette.requests import Request

from saccade.decode.engine import Output
from saccade.serve.detect import Detector
from saccade.serve.errors import ApiError
from saccade.serve.metrics import Metrics
from saccade.serve.models import ServedModel
from saccade.serve.queue import TOO_LATE, Queue, QueuedRequest, SentenceOutput, TranslationOptions
from saccade.serve.registry import ModelRegistry
from saccade.serve.sentences import Pieces, split
from saccade.serve.settings import Settings
from saccade.serve.throughput import Throughput
from saccade.serve.workers import Worker, worker_count

DEFAULT_OPTIONS = TranslationOptions()


@dataclass(frozen=True)
class Detected:
    """The language that a text seems to be in; `confidence` is 0 to 100."""

    language: str
    confidence: int


@dataclass(frozen=True)
class Translated:
    """A whole text: its pieces, and what was found for each of its sentences."""

    pieces: Pieces
    found: Sequence[Sequence[SentenceOutput]]  # outputs of each sentence, best first

    @property
    def text(self) -> str:
        return self._with(0)

    def alternatives(self, most: int) -> list[str]:
        """Other whole texts: of each sentence its next best, or its best where there is no other."""
        deepest = max(map(len, self.found), default=1)
        texts = [self._with(rank) for rank in range(min(most + 1, deepest))]
        return [text for text in dict.fromkeys(texts) if text != texts[0]]

    def _with(self, rank: int) -> str:
        return self.pieces.joined([one_line(outputs[min(rank, len(outputs) - 1)].output) for outputs in self.found])


def one_line(output: Output) -> str:
    """A sentence stays a sentence, whatever a model of bytes may write."""
    return output.text.replace("\n", " ")


class Service:
    """What every route calls."""

    def __init__(self, models: Sequence[ServedModel], settings: Settings, keys: Sequence[str] = ()):
        self.registry = ModelRegistry(models)
        self.settings, self.metrics = settings, Metrics()
        self._keys = [key.encode() for key in keys]
        self._detector = Detector(self.registry.languages)
        self._throughput = Throughput()
        self._workers: list[Worker] = []
        self.queue = Queue(settings, worker_count(), self._throughput, self.metrics)
        self._warm = False

    # ── its life ──

    def start(self) -> None:
        """Within a running event loop: start the threads."""
        threads = max(1, torch.get_num_threads() // worker_count())
        loop = asyncio.get_running_loop()
        self._workers = [
            Worker(self.queue, self._throughput, self.metrics, loop, threads) for _ in range(worker_count())
        ]

    async def warm_up(self) -> None:
        """Translate something with every model, in a full batch and alone, which also shows how fast it is."""
        for model in self.registry.models.values():
            text = (model.examples or ["1"])[0]
            for count in (min(self.settings.batch, self.settings.queue), 1):
                ticket = self._ticket(model, DEFAULT_OPTIONS, [text] * count, "warm-up")
                try:
                    self.queue.submit(ticket)
                    await ticket.done
                except ApiError:  # the log says why; the service is alive but not ready
                    return
        self._warm = True

    @property
    def ready(self) -> bool:
        return self._warm and not self.queue.draining

    @property
    def alive(self) -> bool:
        return not any(worker.stalled(self.settings.stall) for worker in self._workers)

    # ── what it answers ──

    @property
    def requires_key(self) -> bool:
        return bool(self._keys)

    def check_key(self, key: str | None) -> None:
        """Refuse a request without a valid key. All keys are compared, each in constant time."""
        given = (key or "").encode("utf-8", "surrogatepass")
        if self._keys and sum(hmac.compare_digest(given, known) for known in self._keys) == 0:
            raise ApiError(403, "an API key is needed, and this is none; ask whoever runs this service", reason="key")

    def check(self, texts: Sequence[str], wish: TranslationOptions = DEFAULT_OPTIONS) -> None:
        """Refuse a request that is too large."""
        length, limits = sum(map(len, texts)), self.settings
        if len(texts) > limits.texts:
            raise ApiError(413, f"a request may hold {limits.texts:,} texts, not {len(texts):,}")
        if length > limits.characters:
            raise ApiError(413, f"a request may hold {limits.characters:,} characters, not {length:,}")
        if wish.alternatives > limits.alternatives:
            raise ApiError(400, f"alternatives: at most {limits.alternatives} can be asked for")
        if wish.attention and length > limits.attention_characters:
            raise ApiError(400, f"attention: is shown for at most {limits.attention_characters:,} characters")

    def detect(self, text: str, codes: Sequence[str] | None = None) -> list[Detected]:
        """The source languages that are served, the likeliest first."""
        sources = codes or list(dict.fromkeys(model.source for model in self.registry.models.values()))
        return [Detected(code, confidence) for code, confidence in self._detector.rank(text, sources)]

    def choose(
        self, text: str, source: str | None, target: str | None, name: str | None = None
    ) -> tuple[ServedModel, Detected | None]:
        """The model a request means; the language of the text is guessed where it says `auto`."""
        fitting = self.registry.fitting(None if source == "auto" else source, target, name)
        targets = list(dict.fromkeys(model.target for model in fitting))
        detected = None
        if source == "auto" or len({model.source for model in fitting}) > 1:
            detected = self.detect(text, list(dict.fromkeys(model.source for model in fitting)))[0]
            fitting = [model for model in fitting if model.source == detected.language]
            targets = [code for code in targets if any(model.target == code for model in fitting)]
        if len(targets) > 1:
            raise ApiError(400, f"target: which language? ({', '.join(targets)})")
        return fitting[0], detected

    async def translate(
        self, texts: Sequence[str], model: ServedModel, wish: TranslationOptions, number: str
    ) -> list[Translated]:
        """All texts, in order, within the deadline. `number` names the request in the log."""
        if not self._warm:
            raise ApiError(503, "the service is starting", 1, "starting")
        tokens = cache(model.tokens)
        limit = min(self.settings.tokens, model.longest)
        taken_apart = [split(text, lambda sentence: tokens(sentence) <= limit) for text in texts]
        sentences = [sentence for pieces in taken_apart for sentence in pieces.sentences]
        if len(sentences) > self.settings.queue:
            raise ApiError(413, f"the text has {len(sentences):,} sentences; at most {self.settings.queue:,} are taken")
        self.metrics.tokens.labels("read").inc(sum(map(tokens, sentences)))
        found = iter(await self._found(self._ticket(model, wish, sentences, number)) if sentences else ())
        return [Translated(pieces, [next(found) for _ in pieces.sentences]) for pieces in taken_apart]

    def _ticket(
        self, model: ServedModel, wish: TranslationOptions, sentences: Sequence[str], number: str
    ) -> QueuedRequest:
        sizes = [(model.tokens(sentence) + 1) * model.width(wish.alternatives) for sentence in sentences]
        return QueuedRequest(model, wish, sentences, sizes, number, asyncio.get_running_loop().create_future())

    async def _found(self, ticket: QueuedRequest) -> list[list[SentenceOutput]]:
        self.queue.submit(ticket)
        try:
            async with asyncio.timeout(self.settings.deadline):
                return await ticket.done
        except TimeoutError:
            raise ApiError(503, TOO_LATE, 1, "deadline") from None
        finally:
            self.queue.cancel(ticket)


def service_of(request: Request) -> Service:
    return request.app.state.service
