"""The service from text to text, with queue and workers but without HTTP; the model translates into upper case."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from saccade.serve.errors import ApiError
from saccade.serve.queue import TranslationOptions
from saccade.serve.service import DEFAULT_OPTIONS, Service, TranslatedText
from saccade.serve.settings import Settings
from serve.fake_models import BlockingFault, UppercaseModel


@asynccontextmanager
async def serving(*models: UppercaseModel, **settings: Any) -> AsyncIterator[Service]:
    """A started and warmed-up service."""
    served: Any = models or (UppercaseModel(),)
    service = Service(served, Settings(**settings))
    service.start()
    await service.warm_up()
    assert service.ready
    for model in served:
        model.batches.clear()
        model.counted.clear()
    try:
        yield service
    finally:
        service.queue.close()


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))  # type: ignore[arg-type]


async def translate(
    service: Service, *texts: str, options: TranslationOptions = DEFAULT_OPTIONS
) -> list[TranslatedText]:
    """Translate with the first model."""
    service.check_size(texts, options)
    model = next(iter(service.registry.models.values()))
    return await service.translate(texts, model, options, "request-id")


def test_white_space_and_line_breaks_are_kept() -> None:
    async def test() -> None:
        async with serving() as service:
            translations = await translate(service, "  One. Two!\n\n\tthree ", "", " \n", "4. März")
            assert [translation.text for translation in translations] == [
                "  ONE. TWO!\n\n\tTHREE ",
                "",
                " \n",
                "4. MÄRZ",
            ]

    run(test)


def test_each_sentence_has_alternatives_links_and_attention() -> None:
    async def test() -> None:
        async with serving() as service:
            [translation] = await translate(
                service, "one bit. Two bits.", options=TranslationOptions(2, alignments=True, attention=True)
            )
            assert translation.alternatives(2) == ["ONE BIT.? TWO BITS.?", "ONE BIT.?? TWO BITS.??"]
            assert translation.outputs[1][2].alignment == [(0, 0), (1, 1)]
            assert translation.outputs[0][0].attention == {"scale": 1, "sentences": ["one bit.", "ONE BIT."]}

    run(test)


def test_concurrent_requests_share_batches() -> None:
    async def test() -> None:
        model = UppercaseModel()
        async with serving(model, batch_wait=0.5) as service:
            await asyncio.gather(*(translate(service, f"text {i}") for i in range(service.settings.batch)))
            assert len(model.batches) < service.settings.batch

    run(test)


def test_sentence_over_the_token_limit_is_cut_and_joined_again() -> None:
    async def test() -> None:
        model = UppercaseModel()
        async with serving(model, tokens=4) as service:
            [translation] = await translate(service, "a b c d, e f g h i")
            assert translation.text == "A B C D, E F G H I"
            assert all(len(sentence.split()) <= 4 for batch in model.batches for sentence in batch)

    run(test)


def test_each_sentence_is_tokenized_once() -> None:
    async def test() -> None:
        model = UppercaseModel()
        async with serving(model) as service:
            await translate(service, "One. Two!\n\nthree", "four")
            assert model.counted == ["One.", "Two!", "three", "four"]
            assert service.metrics.tokens.labels("source")._value.get() == 4

    run(test)


@pytest.mark.parametrize(
    ("texts", "options", "status"),
    [
        (["a" * 101], TranslationOptions(), 413),
        (["a"] * 4, TranslationOptions(), 413),
        (["a\nb\nc\nd\ne\nf"], TranslationOptions(), 413),
        (["a"], TranslationOptions(3), 400),
        (["a" * 30], TranslationOptions(attention=True), 400),
    ],
)
def test_request_over_a_limit_is_refused(texts: list[str], options: TranslationOptions, status: int) -> None:
    async def test() -> None:
        async with serving(
            characters=100, texts=3, queue=5, batch=5, alternatives=2, attention_characters=20
        ) as service:
            with pytest.raises(ApiError) as error:
                await translate(service, *texts, options=options)
            assert error.value.status == status

    run(test)


def test_model_exception_fails_only_its_own_request(caplog: pytest.LogCaptureFixture) -> None:
    def fault(sentences: Any, should_continue: Any) -> None:
        if "bad" in sentences:
            raise RuntimeError("boom")

    async def test() -> None:
        model = UppercaseModel()
        async with serving(model, batch_wait=0.3) as service:
            model.fault = fault
            texts = ["good", "bad", "fine"]
            good, bad, fine = await asyncio.gather(
                *(translate(service, text) for text in texts), return_exceptions=True
            )
            assert isinstance(good, list)
            assert isinstance(fine, list)
            assert isinstance(bad, ApiError)
            assert bad.status == 500
            assert "request-id" in str(bad)
            assert "boom" not in str(bad)
            assert (await translate(service, "again"))[0].text == "AGAIN"

    run(test)
    assert "request request-id failed" in caplog.text
    assert "boom" in caplog.text


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 1 bytes")]
)
def test_out_of_memory_is_503_and_the_service_stays_up(error: Exception) -> None:
    def fault(sentences: Any, should_continue: Any) -> None:
        raise error

    async def test() -> None:
        model = UppercaseModel()
        async with serving(model) as service:
            model.fault = fault
            with pytest.raises(ApiError) as error:
                await translate(service, "a")
            assert error.value.status == 503
            assert "retry-after" in error.value.headers
            model.fault = lambda sentences, should_continue: None
            assert (await translate(service, "a"))[0].text == "A"

    run(test)


def test_request_past_its_deadline_is_503_and_its_search_is_cancelled() -> None:
    async def test() -> None:
        model, blocking = UppercaseModel(), BlockingFault()
        async with serving(model, deadline=0.2) as service:
            model.fault = blocking
            with pytest.raises(ApiError) as error:
                await translate(service, "a")
            assert error.value.status == 503
            assert await asyncio.to_thread(blocking.cancelled.wait, 30)

    run(test)


def test_cancelled_request_leaves_the_queue_and_its_search_is_cancelled() -> None:
    async def test() -> None:
        model, blocking = UppercaseModel(), BlockingFault()
        async with serving(model, batch=1) as service:
            model.fault = blocking
            cancelled = asyncio.create_task(translate(service, "\n".join("abcdefgh")))
            await asyncio.to_thread(blocking.entered.wait, 30)
            assert service.metrics.queue_size._value.get() > 0
            cancelled.cancel()
            await asyncio.wait([cancelled])
            assert service.metrics.queue_size._value.get() == 0
            assert await asyncio.to_thread(blocking.cancelled.wait, 30)
            model.fault = lambda sentences, should_continue: None
            assert (await translate(service, "next"))[0].text == "NEXT"

    run(test)


@pytest.mark.slow
def test_search_continues_while_one_request_of_its_batch_waits() -> None:
    async def test() -> None:
        model, blocking = UppercaseModel(), BlockingFault()
        async with serving(model, batch_wait=0.5) as service:
            model.fault = blocking
            cancelled, other = (asyncio.create_task(translate(service, text)) for text in ("cancelled", "other"))
            await asyncio.to_thread(blocking.entered.wait, 30)
            cancelled.cancel()
            await asyncio.sleep(0.05)
            blocking.released.set()
            assert (await other)[0].text == "OTHER"

    run(test)


def test_stalled_model_makes_the_service_not_alive() -> None:
    async def test() -> None:
        model, blocking = UppercaseModel(), BlockingFault()
        async with serving(model, stall=0.1, deadline=0.5) as service:
            assert service.alive
            model.fault = lambda sentences, should_continue: blocking(
                sentences, lambda: True
            )  # ignores should_continue
            with pytest.raises(ApiError):
                await translate(service, "a")
            assert not service.alive
            blocking.released.set()
            while not service.alive:
                await asyncio.sleep(0.01)

    run(test)


def test_model_is_chosen_by_languages_name_or_detected_language() -> None:
    async def test() -> None:
        async with serving(
            UppercaseModel("x"), UppercaseModel("y", "de", "en"), UppercaseModel("z", "en", "fr")
        ) as service:
            choose = service.choose_model
            assert choose("", "en", "de")[0].name == "x"
            assert choose("", "de", None)[0].name == "y"
            assert choose("", None, "fr")[0].name == "z"
            assert choose("", None, None, "z")[0].name == "z"
            model, detected = choose("Two dogs run across the meadow.", "auto", "fr")
            assert model.name == "z"
            assert detected
            assert detected.language == "en"
            assert choose("Zwei Hunde laufen über die Wiese.", None, None)[0].name == "y"
            with pytest.raises(ApiError, match="target: several languages are possible; choose one of de, fr"):
                choose("Two dogs run across the meadow.", "auto", None)

    run(test)


def test_service_refuses_requests_until_all_models_are_warm() -> None:
    async def test() -> None:
        models: Any = [UppercaseModel()]
        service = Service(models, Settings(queue=3))
        service.start()
        with pytest.raises(ApiError) as error:
            await translate(service, "a")
        assert error.value.status == 503
        assert not service.ready
        await service.warm_up()
        assert service.ready
        assert (await translate(service, "a"))[0].text == "A"
        service.queue.close()

    run(test)


def test_key_is_required_if_the_service_has_keys() -> None:
    models: Any = [UppercaseModel()]
    Service(models, Settings()).check_key("whatever")
    service = Service(models, Settings(), ["one", "zwei ü"])
    service.check_key("one")
    service.check_key("zwei ü")
    for key in (None, "", "on", "onee", "\ud800"):
        with pytest.raises(ApiError) as error:
            service.check_key(key)
        assert error.value.status == 403
