"""The responses of all routes to valid requests, on a server with two models for two language pairs."""

import json
import re
from typing import Any

import pytest

from serve.http_client import Server

DATE = "Tuesday, March 4, 2031"
GERMAN = "Dienstag, 4. März 2031"


def translated(server: Server, **fields: Any) -> dict[str, Any]:
    response = server.post("/v1/translate", fields)
    assert response.status == 200, response.body
    return response.json()


# ── /v1 ───────────────────────────────────────────────────────────────────────────────────────────


def test_models_are_listed_with_languages_and_examples(server: Server) -> None:
    models = server.get("/v1/models").json()
    assert [(model["name"], model["source"], model["target"]) for model in models] == [
        ("dates", "en", "de"),
        ("back", "de", "en"),
    ]
    assert {model["source_name"] for model in models} == {"English", "German"}
    assert all(isinstance(example, str) for model in models for example in model["examples"])
    assert models[0]["examples"]


def test_model_is_chosen_by_languages_name_or_detected_language(server: Server) -> None:
    assert translated(server, text=DATE, source="en")["model"] == "dates"
    assert translated(server, text=DATE, target="en")["model"] == "back"
    assert translated(server, text=DATE, model="back")["model"] == "back"
    for text, code, model in ((DATE, "en", "dates"), (GERMAN, "de", "back")):
        for source in ("auto", None):
            result = translated(server, text=text, source=source)
            assert (result["model"], result["source"], result["detected"]["language"]) == (model, code, code)
            assert 0 <= result["detected"]["confidence"] <= 100
    assert translated(server, text=DATE, source="en")["detected"] is None


def test_response_has_alternatives_scores_links_and_attention_of_each_sentence(server: Server) -> None:
    text = f"{DATE}\n\n{DATE}"
    options = {"alternatives": 2, "alignments": True, "attention": True}
    [whole] = translated(server, text=text, source="en", target="de", **options)["translations"]
    assert len(whole["sentences"]) == 2
    assert whole["text"] == "\n\n".join(sentence["text"] for sentence in whole["sentences"])
    assert 1 <= len(whole["alternatives"]) <= 2
    for sentence in whole["sentences"]:
        assert sentence["source"] == DATE
        assert sentence["score"] <= 0
        scores = [sentence["score"], *(other["score"] for other in sentence["alternatives"])]
        assert scores == sorted(scores, reverse=True)
        words = len(DATE.split()), len(sentence["text"].split())
        assert all(0 <= s < words[0] and 0 <= t < words[1] for s, t in sentence["alignment"])
        assert sentence["attention"]["scale"]
        assert sentence["attention"]["sentences"]


def test_options_that_were_not_requested_are_null_or_empty(server: Server) -> None:
    [whole] = translated(server, text=DATE, source="en")["translations"]
    assert whole["alternatives"] == []
    [sentence] = whole["sentences"]
    assert sentence["alignment"] is None
    assert sentence["attention"] is None
    assert sentence["alternatives"] == []


def test_list_of_texts_gives_one_translation_each_and_keeps_white_space(server: Server) -> None:
    texts = [DATE, "", "  \n", f" {DATE} \n"]
    translations = translated(server, text=texts, source="en")["translations"]
    [first] = translated(server, text=DATE, source="en")["translations"]
    assert [translation["text"] for translation in translations] == [first["text"], "", "  \n", f" {first['text']} \n"]
    assert translated(server, text=[], source="en")["translations"] == []


def test_translation_does_not_depend_on_the_batch(server: Server) -> None:
    dates = [f"March {day}, 2031" for day in range(1, 29)]
    separate = [translated(server, text=date, source="en")["translations"][0]["text"] for date in dates]
    batched = [text["text"] for text in translated(server, text=dates, source="en")["translations"]]
    assert separate == batched


# ── LibreTranslate ────────────────────────────────────────────────────────────────────────────────


def test_languages_are_listed_with_names_and_targets(server: Server) -> None:
    assert server.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": ["en"]},
    ]


def test_translate_responds_in_the_format_of_libretranslate(server: Server) -> None:
    """A list for a list of texts, the detected language for `auto`, alternatives if requested."""
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
    assert [detected["language"] for detected in autos["detectedLanguage"]] == ["en", "en"]
    several = server.post("/translate", {"q": DATE, **base, "alternatives": 3}).json()
    assert all(isinstance(text, str) for text in several["alternatives"])
    assert several["translatedText"] not in several["alternatives"]
    batch = server.post("/translate", {"q": [DATE, DATE], **base, "alternatives": 3}).json()
    assert [type(alternatives) for alternatives in batch["alternatives"]] == [list, list]


def test_detect_ranks_the_correct_language_first(server: Server) -> None:
    for text, code in ((DATE, "en"), (GERMAN, "de")):
        detected = server.post("/detect", {"q": text}).json()
        assert detected[0]["language"] == code
        confidences = [language["confidence"] for language in detected]
        assert confidences == sorted(confidences, reverse=True)


def test_frontend_settings_have_the_fields_of_libretranslate(server: Server) -> None:
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
def test_disabled_routes_are_403(server: Server, path: str) -> None:
    response = server.post(path, {"q": "a", "s": "b", "source": "en", "target": "de"})
    assert response.status == 403
    assert response.error()


# ── probes, metrics, descriptions ─────────────────────────────────────────────────────────────────


def test_probes_are_ok_on_a_ready_server(server: Server) -> None:
    for path in ("/health", "/livez", "/readyz"):
        assert server.get(path).json() == {"status": "ok"}


METRICS = ["requests_total", "request_duration_seconds_count", "queue_size", "queue_wait_seconds_count"]
METRICS += ["batch_size_count", "tokens_total", "rejected_total"]


def test_metrics_have_no_label_with_clients_keys_or_texts(server: Server) -> None:
    server.post("/translate", {"q": DATE, "source": "en", "target": "de"})
    server.get("/some/path/nobody/serves", {"X-Forwarded-For": "198.51.100.7"})
    server.request("POST", "/translate?api_key=some-key&q=some+text", headers={"Host": "evil.example"})
    for name in METRICS:
        assert server.metric(name) >= 0
    page = server.get("/metrics")
    assert page.headers["Content-Type"].startswith("text/plain")
    text = page.body.decode()
    for word in ("127.0.0.1", "198.51.100.7", "some-key", "text", "nobody", "evil"):
        assert not re.search(rf'="[^"]*{word}', text)


def test_requests_are_counted_by_endpoint_and_status(server: Server) -> None:
    def count() -> float:
        text = server.get("/metrics").body.decode()
        match = re.search(r'saccade_requests_total\{endpoint="/detect",status="200"\} (\S+)', text)
        return float(match[1]) if match else 0

    before = count()
    assert server.post("/detect", {"q": DATE}).status == 200
    assert count() == before + 1


def test_api_descriptions_load_nothing_from_other_hosts(server: Server) -> None:
    for path in ("/openapi.json", "/spec"):
        assert server.get(path).status == 200
    docs = server.get("/docs")
    assert docs.status == 404 or not re.search(rb"""(src|href)=["']?(https?:)?//""", docs.body)


def test_responses_are_utf_8(server: Server) -> None:
    response = server.post("/v1/translate", {"text": "März 😀 \u0000 ‮", "source": "en"})
    assert response.status == 200
    assert response.headers["Content-Type"] == "application/json"
    json.loads(response.body.decode("utf-8"))
