"""From text to text by way of the queue and the workers, with models that shout instead of translating."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from saccade.serve.errors import ApiError
from saccade.serve.queue import TranslationOptions
from saccade.serve.service import Service, Translated
from saccade.serve.settings import Settings
from serve.fakes import Gate, Shouting


@asynccontextmanager
async def serving(*models: Shouting, **settings: Any) -> AsyncIterator[Service]:
    loud: Any = models or (Shouting(),)
    service = Service(loud, Settings(**settings))
    service.start()
    await service.warm_up()
    assert service.ready
    for model in loud:
        model.batches.clear()
    try:
        yield service
    finally:
        service.queue.close()


def running(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))  # type: ignore[arg-type]


async def asked(service: Service, *texts: str, wish: TranslationOptions = TranslationOptions()) -> list[Translated]:  # noqa: B008 - frozen
    service.check(texts, wish)
    model = next(iter(service.registry.models.values()))
    return await service.translate(texts, model, wish, "number")


def test_text_keeps_its_white_space_and_line_breaks() -> None:
    async def test() -> None:
        async with serving() as service:
            found = await asked(service, "  One. Two!\n\n\tthree ", "", " \n", "4. März")
            assert [each.text for each in found] == ["  ONE. TWO!\n\n\tTHREE ", "", " \n", "4. MÄRZ"]

    running(test)


def test_alternatives_links_and_attention_come_with_each_sentence() -> None:
    async def test() -> None:
        async with serving() as service:
            [found] = await asked(service, "one bit. Two bits.", wish=TranslationOptions(2, links=True, attention=True))
            assert found.alternatives(2) == ["ONE BIT.? TWO BITS.?", "ONE BIT.?? TWO BITS.??"]
            assert found.found[1][2].links == [(0, 0), (1, 1)]
            assert found.found[0][0].attention == {"scale": 1, "sentences": ["one bit.", "ONE BIT."]}

    running(test)


def test_requests_that_come_together_are_translated_together() -> None:
    async def test() -> None:
        loud = Shouting()
        async with serving(loud, batch_wait=0.5) as service:
            await asyncio.gather(*(asked(service, f"text {i}") for i in range(service.settings.batch)))
            assert len(loud.batches) < service.settings.batch

    running(test)


def test_a_sentence_beyond_the_limit_is_cut_and_put_together() -> None:
    async def test() -> None:
        loud = Shouting()
        async with serving(loud, tokens=4) as service:
            [found] = await asked(service, "a b c d, e f g h i")
            assert found.text == "A B C D, E F G H I"
            assert all(len(sentence.split()) <= 4 for batch in loud.batches for sentence in batch)

    running(test)


@pytest.mark.parametrize(
    ("texts", "wish", "status"),
    [
        (["a" * 101], TranslationOptions(), 413),
        (["a"] * 4, TranslationOptions(), 413),
        (["a\nb\nc\nd\ne\nf"], TranslationOptions(), 413),
        (["a"], TranslationOptions(3), 400),
        (["a" * 30], TranslationOptions(attention=True), 400),
    ],
)
def test_limits_are_kept(texts: list[str], wish: TranslationOptions, status: int) -> None:
    async def test() -> None:
        async with serving(
            characters=100, texts=3, queue=5, batch=5, alternatives=2, attention_characters=20
        ) as service:
            with pytest.raises(ApiError) as refusal:
                await asked(service, *texts, wish=wish)
            assert refusal.value.status == status

    running(test)


def test_one_bad_sentence_fails_its_own_request_alone(caplog: pytest.LogCaptureFixture) -> None:
    def fault(sentences: Any, going: Any) -> None:
        if "bad" in sentences:
            raise RuntimeError("boom")

    async def test() -> None:
        loud = Shouting()
        async with serving(loud, batch_wait=0.3) as service:
            loud.fault = fault
            texts = ["good", "bad", "fine"]
            good, bad, fine = await asyncio.gather(*(asked(service, text) for text in texts), return_exceptions=True)
            assert isinstance(good, list)
            assert isinstance(fine, list)
            assert isinstance(bad, ApiError)
            assert bad.status == 500
            assert "number" in str(bad)
            assert "boom" not in str(bad)
            assert (await asked(service, "again"))[0].text == "AGAIN"

    running(test)
    assert "request number failed" in caplog.text
    assert "boom" in caplog.text


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 1 bytes")]
)
def test_a_lack_of_memory_is_503_and_the_service_lives(error: Exception) -> None:
    def fault(sentences: Any, going: Any) -> None:
        raise error

    async def test() -> None:
        loud = Shouting()
        async with serving(loud) as service:
            loud.fault = fault
            with pytest.raises(ApiError) as refusal:
                await asked(service, "a")
            assert refusal.value.status == 503
            assert "retry-after" in refusal.value.headers
            loud.fault = lambda sentences, going: None
            assert (await asked(service, "a"))[0].text == "A"

    running(test)


def test_a_request_past_its_deadline_is_503_and_its_batch_is_given_up() -> None:
    async def test() -> None:
        loud, gate = Shouting(), Gate()
        async with serving(loud, deadline=0.2) as service:
            loud.fault = gate
            with pytest.raises(ApiError) as refusal:
                await asked(service, "a")
            assert refusal.value.status == 503
            assert await asyncio.to_thread(gate.abandoned.wait, 30)

    running(test)


def test_a_client_that_goes_away_leaves_the_queue_and_its_batch_is_given_up() -> None:
    async def test() -> None:
        loud, gate = Shouting(), Gate()
        async with serving(loud, batch=1) as service:
            loud.fault = gate
            gone = asyncio.create_task(asked(service, "\n".join("abcdefgh")))
            await asyncio.to_thread(gate.entered.wait, 30)
            assert service.metrics.queue_size._value.get() > 0
            gone.cancel()
            await asyncio.wait([gone])
            assert service.metrics.queue_size._value.get() == 0
            assert await asyncio.to_thread(gate.abandoned.wait, 30)
            loud.fault = lambda sentences, going: None
            assert (await asked(service, "next"))[0].text == "NEXT"

    running(test)


def test_a_batch_goes_on_while_one_of_its_clients_waits() -> None:
    async def test() -> None:
        loud, gate = Shouting(), Gate()
        async with serving(loud, batch_wait=0.5) as service:
            loud.fault = gate
            goes, stays = (asyncio.create_task(asked(service, text)) for text in ("goes", "stays"))
            await asyncio.to_thread(gate.entered.wait, 30)
            goes.cancel()
            await asyncio.sleep(0.05)
            gate.opened.set()
            assert (await stays)[0].text == "STAYS"

    running(test)


def test_a_model_that_stalls_is_noticed() -> None:
    async def test() -> None:
        loud, gate = Shouting(), Gate()
        async with serving(loud, stall=0.1, deadline=0.5) as service:
            assert service.alive
            loud.fault = lambda sentences, going: gate(sentences, lambda: True)  # never asks whether to go on
            with pytest.raises(ApiError):
                await asked(service, "a")
            assert not service.alive
            gate.opened.set()
            while not service.alive:
                await asyncio.sleep(0.01)

    running(test)


def test_a_request_is_led_to_the_model_it_means() -> None:
    async def test() -> None:
        async with serving(Shouting("x"), Shouting("y", "de", "en"), Shouting("z", "en", "fr")) as service:
            choose = service.choose
            assert choose("", "en", "de")[0].name == "x"
            assert choose("", "de", None)[0].name == "y"
            assert choose("", None, "fr")[0].name == "z"
            assert choose("", None, None, "z")[0].name == "z"
            model, detected = choose("Two dogs run across the meadow.", "auto", "fr")
            assert model.name == "z"
            assert detected
            assert detected.language == "en"
            assert choose("Zwei Hunde laufen über die Wiese.", None, None)[0].name == "y"
            with pytest.raises(ApiError, match="target: which language"):
                choose("Two dogs run across the meadow.", "auto", None)

    running(test)


def test_nothing_is_translated_before_every_model_is_warm() -> None:
    async def test() -> None:
        loud: Any = [Shouting()]
        service = Service(loud, Settings(queue=3))
        service.start()
        with pytest.raises(ApiError) as refusal:
            await asked(service, "a")
        assert refusal.value.status == 503
        assert not service.ready
        await service.warm_up()
        assert service.ready
        assert (await asked(service, "a"))[0].text == "A"
        service.queue.close()

    running(test)


def test_keys_are_wanted_once_there_are_any() -> None:
    loud: Any = [Shouting()]
    Service(loud, Settings()).check_key("whatever")
    service = Service(loud, Settings(), ["one", "zwei ü"])
    service.check_key("one")
    service.check_key("zwei ü")
    for key in (None, "", "on", "onee", "\ud800"):
        with pytest.raises(ApiError) as refusal:
            service.check_key(key)
        assert refusal.value.status == 403
