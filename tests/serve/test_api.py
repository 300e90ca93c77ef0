"""What the routes say when all is well: two models of two language pairs behind one address."""

import json
import re
from typing import Any

import pytest

from serve.wire import Server

DATE = "Tuesday, March 4, 2031"
GERMAN = "Dienstag, 4. März 2031"


def translated(server: Server, **fields: Any) -> dict[str, Any]:
    answer = server.post("/v1/translate", fields)
    assert answer.status == 200, answer.body
    return answer.json()


# ── /v1 ───────────────────────────────────────────────────────────────────────────────────────────


def test_models(server: Server) -> None:
    models = server.get("/v1/models").json()
    assert [(model["name"], model["source"], model["target"]) for model in models] == [
        ("dates", "en", "de"),
        ("back", "de", "en"),
    ]
    assert {model["source_name"] for model in models} == {"English", "German"}
    assert all(isinstance(example, str) for model in models for example in model["examples"])
    assert models[0]["examples"]


def test_the_model_is_found_by_languages_by_name_and_by_the_text(server: Server) -> None:
    """The service: several models at once by language pair."""
    assert translated(server, text=DATE, source="en")["model"] == "dates"
    assert translated(server, text=DATE, target="en")["model"] == "back"
    assert translated(server, text=DATE, model="back")["model"] == "back"
    for text, code, model in ((DATE, "en", "dates"), (GERMAN, "de", "back")):
        for source in ("auto", None):
            found = translated(server, text=text, source=source)
            assert (found["model"], found["source"], found["detected"]["language"]) == (model, code, code)
            assert 0 <= found["detected"]["confidence"] <= 100
    assert translated(server, text=DATE, source="en")["detected"] is None


def test_everything_that_can_be_asked_for(server: Server) -> None:
    """Alternatives, scores, alignments and attention of each sentence."""
    text = f"{DATE}\n\n{DATE}"
    found = translated(server, text=text, source="en", target="de", alternatives=2, alignments=True, attention=True)
    [whole] = found["translations"]
    assert len(whole["sentences"]) == 2
    assert whole["text"] == "\n\n".join(sentence["text"] for sentence in whole["sentences"])
    assert 1 <= len(whole["alternatives"]) <= 2
    for sentence in whole["sentences"]:
        assert sentence["source"] == DATE
        assert sentence["score"] <= 0
        scores = [sentence["score"], *(other["score"] for other in sentence["alternatives"])]
        assert scores == sorted(scores, reverse=True)
        words = len(DATE.split()), len(sentence["text"].split())
        assert all(0 <= s < words[0] and 0 <= t < words[1] for s, t in sentence["links"])
        assert sentence["attention"]["scale"]
        assert sentence["attention"]["sentences"]


def test_nothing_is_sent_that_was_not_asked_for(server: Server) -> None:
    [whole] = translated(server, text=DATE, source="en")["translations"]
    assert whole["alternatives"] == []
    [sentence] = whole["sentences"]
    assert sentence["links"] is None
    assert sentence["attention"] is None
    assert sentence["alternatives"] == []


def test_several_texts(server: Server) -> None:
    texts = [DATE, "", "  \n", f" {DATE} \n"]
    found = translated(server, text=texts, source="en")["translations"]
    [first] = translated(server, text=DATE, source="en")["translations"]
    assert [each["text"] for each in found] == [first["text"], "", "  \n", f" {first['text']} \n"]
    assert translated(server, text=[], source="en")["translations"] == []


def test_others_in_a_batch_change_nothing(server: Server) -> None:
    """Conventions C2, promise 5."""
    dates = [f"March {day}, 2031" for day in range(1, 29)]
    alone = [translated(server, text=date, source="en")["translations"][0]["text"] for date in dates]
    together = [each["text"] for each in translated(server, text=dates, source="en")["translations"]]
    assert alone == together


# ── LibreTranslate ────────────────────────────────────────────────────────────────────────────────


def test_languages(server: Server) -> None:
    assert server.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": ["en"]},
    ]


def test_shapes_of_translations(server: Server) -> None:
    """Conventions B4: lists for batches, detected languages for `auto`, alternatives where asked for."""
    base = {"source": "en", "target": "de"}
    one = server.post("/translate", {"q": DATE, **base}).json()
    assert list(one) == ["translatedText"]
    many = server.post("/translate", {"q": [DATE, DATE], **base}).json()
    assert many == {"translatedText": [one["translatedText"]] * 2}
    auto = server.post("/translate", {"q": DATE, **base, "source": "auto"}).json()
    assert auto["translatedText"] == one["translatedText"]
    assert auto["detectedLanguage"]["language"] == "en"
    assert 0 <= auto["detectedLanguage"]["confidence"] <= 100
    autos = server.post("/translate", {"q": [DATE, DATE], **base, "source": "auto"}).json()
    assert [found["language"] for found in autos["detectedLanguage"]] == ["en", "en"]
    several = server.post("/translate", {"q": DATE, **base, "alternatives": 3}).json()
    assert all(isinstance(text, str) for text in several["alternatives"])
    assert several["translatedText"] not in several["alternatives"]
    batch = server.post("/translate", {"q": [DATE, DATE], **base, "alternatives": 3}).json()
    assert [type(each) for each in batch["alternatives"]] == [list, list]


def test_detect(server: Server) -> None:
    for text, code in ((DATE, "en"), (GERMAN, "de")):
        found = server.post("/detect", {"q": text}).json()
        assert found[0]["language"] == code
        assert [each["confidence"] for each in found] == sorted((e["confidence"] for e in found), reverse=True)


def test_settings_of_the_page(server: Server) -> None:
    settings = server.get("/frontend/settings").json()
    assert {
        "charLimit",
        "frontendTimeout",
        "apiKeys",
        "keyRequired",
        "suggestions",
        "filesTranslation",
    } <= settings.keys()
    assert settings["supportedFilesFormat"] == []
    assert settings["language"]["source"]["code"] in ("auto", "en", "de")
    assert settings["language"]["target"]["name"] in ("English", "German")


@pytest.mark.parametrize("path", ["/translate_file", "/suggest"])
def test_what_is_not_offered_is_refused(server: Server, path: str) -> None:
    answer = server.post(path, {"q": "a", "s": "b", "source": "en", "target": "de"})
    assert answer.status == 403
    assert answer.error()


# ── probes, metrics, descriptions ─────────────────────────────────────────────────────────────────


def test_probes(server: Server) -> None:
    for path in ("/health", "/livez", "/readyz"):
        assert server.get(path).json() == {"status": "ok"}


METRICS = ["requests_total", "request_duration_seconds_count", "queue_size", "queue_wait_seconds_count"]
METRICS += ["batch_size_count", "tokens_total", "rejected_total"]


def test_metrics(server: Server) -> None:
    """Conventions B3: what is counted, and that no label grows with clients, keys, texts or addresses."""
    server.post("/translate", {"q": DATE, "source": "en", "target": "de"})
    server.get("/some/path/nobody/serves", {"X-Forwarded-For": "198.51.100.7"})
    server.ask("POST", "/translate?api_key=some-key&q=some+text", headers={"Host": "evil.example"})
    for name in METRICS:
        assert server.metric(name) >= 0
    page = server.get("/metrics")
    assert page.headers["Content-Type"].startswith("text/plain")
    text = page.body.decode()
    for word in ("127.0.0.1", "198.51.100.7", "some-key", "text", "nobody", "evil"):
        assert not re.search(rf'="[^"]*{word}', text)


def test_requests_are_counted(server: Server) -> None:
    def count() -> float:
        text = server.get("/metrics").body.decode()
        found = re.search(r'saccade_requests_total\{endpoint="/detect",status="200"\} (\S+)', text)
        return float(found[1]) if found else 0

    before = count()
    assert server.post("/detect", {"q": DATE}).status == 200
    assert count() == before + 1


def test_descriptions_need_no_network(server: Server) -> None:
    for path in ("/openapi.json", "/spec"):
        assert server.get(path).status == 200
    docs = server.get("/docs")
    assert docs.status == 404 or not re.search(rb"""(src|href)=["']?(https?:)?//""", docs.body)


def test_answers_are_utf_8(server: Server) -> None:
    answer = server.post("/v1/translate", {"text": "März 😀 \u0000 ‮", "source": "en"})
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    json.loads(answer.body.decode("utf-8"))
