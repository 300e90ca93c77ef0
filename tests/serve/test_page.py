"""The translation page in a real browser, with a real server."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from serve.http_client import Server, wait_until
from view.browser import BrowserPage, chromium

DATE = "Tuesday, March 4, 2031"
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
PAIR = "#source=en&target=de&model=dates"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def uppercase_server(scripted: Any) -> Any:
    """A server whose model translates into upper case."""
    return scripted()


OpenPage = Callable[..., BrowserPage]


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """Open the page of a server. After the test it must have reported no errors and sent no requests elsewhere."""
    pages: list[tuple[Server, BrowserPage]] = []

    def start(server: Server, fragment: str = "", **settings: Any) -> BrowserPage:
        pages.append((server, BrowserPage(browser, f"{server.address}/{fragment}", **settings)))
        pages[-1][1].page.locator("#counter:not(:empty)").wait_for()
        return pages[-1][1]

    yield start
    for server, browser_page in pages:
        assert browser_page.messages == []
        assert all(url.startswith(server.address) for url in browser_page.requests)
        browser_page.page.close()


def sentence(source: str, *outputs: str, alignment: list[list[int]] | None = None) -> dict[str, Any]:
    """A sentence of a response, with outputs of decreasing score."""
    best, *others = [
        {"text": text, "score": -0.25 * number, "alignment": [], "attention": None}
        for number, text in enumerate(outputs, 1)
    ]
    return {"source": source, **best, "alternatives": others, "alignment": alignment}


def response(*sentences: dict[str, Any]) -> dict[str, Any]:
    """A response of /v1/translate."""
    text = " ".join(translated["text"] for translated in sentences)
    translation = {"text": text, "alternatives": [], "sentences": list(sentences)}
    return {"model": "dates", "source": "en", "target": "de", "detected": None, "translations": [translation]}


def mock_responses(opened: BrowserPage, *responses: dict[str, Any]) -> list[dict[str, Any]]:
    """Answer the page's requests with these responses; the last one repeats. Returns the list of request bodies, which
    grows."""
    bodies: list[dict[str, Any]] = []

    def reply(route: Any) -> None:
        bodies.append(route.request.post_data_json)
        route.fulfill(json=responses[min(len(bodies), len(responses)) - 1])

    opened.page.route("**/v1/translate", reply)
    return bodies


def requested_text(request: Any) -> str | None:
    """The text of a translation request, None for any other request."""
    return request.post_data_json["text"] if request.url.endswith("/v1/translate") else None


def wait_for_translation(opened: BrowserPage, text: str) -> None:
    opened.page.locator("#translation:not(.stale)").get_by_text(text, exact=True).wait_for()


def wait_for_status(opened: BrowserPage, text: str) -> None:
    opened.page.locator("#status").get_by_text(text).wait_for()


def type_and_translate(opened: BrowserPage, text: str) -> str:
    """Type a text; returns the translation that the page shows."""
    opened.page.fill("#text", text)
    opened.page.locator("#translation:not(.stale) .word").first.wait_for()
    return opened.page.locator("#translation").inner_text()


# ── translating ──


def test_typed_text_is_translated_with_the_model_of_the_language_pair(open_page: OpenPage, server: Server) -> None:
    page = open_page(server).page
    assert page.locator("#source option").all_text_contents() == ["English", "German", "Detect language"]
    for name, source, target in (("dates", "en", "de"), ("back", "de", "en")):
        page.select_option("#source", source)
        page.fill("#text", "")
        # on a slow machine the page may also send a request before the last keystroke
        with page.expect_request(lambda request: requested_text(request) == DATE) as request:
            page.locator("#text").press_sequentially(DATE)
        expected = server.post("/v1/translate", request.value.post_data_json).json()
        assert (expected["model"], expected["target"]) == (name, target)
        page.locator("#translation:not(.stale)").get_by_text(expected["translations"][0]["text"], exact=True).wait_for()
        assert page.locator("#translation").get_attribute("lang") == target
        assert page.locator("#announcement").text_content() == expected["translations"][0]["text"]


def test_further_typing_cancels_the_earlier_request(open_page: OpenPage, uppercase_server: Any) -> None:
    opened = open_page(uppercase_server)
    cancelled: list[str] = []
    opened.page.on("requestfailed", lambda request: cancelled.append(request.post_data_json["text"]))
    with opened.page.expect_request("**/v1/translate"):
        opened.page.fill("#text", "hold it")
    assert opened.page.locator("#busy").is_visible()
    opened.page.fill("#text", "newer")
    wait_for_translation(opened, "NEWER")
    assert cancelled == ["hold it"]
    uppercase_server.release("it")
    opened.page.fill("#text", "newest")
    wait_for_translation(opened, "NEWEST")
    assert opened.page.locator("#busy").is_hidden()


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (lambda route: route.fulfill(status=429, json={"error": "full"}, headers={"Retry-After": "7"}), "is busy"),
        (lambda route: route.fulfill(status=503, json={"error": "late"}, headers={"Retry-After": "7"}), "is busy"),
        (lambda route: route.abort("connectionrefused"), "does not answer"),
    ],
)
def test_busy_or_unreachable_service_is_tried_again(
    open_page: OpenPage, uppercase_server: Any, failure: Callable[[Any], None], message: str
) -> None:
    opened = open_page(uppercase_server)
    opened.page.clock.install()
    opened.page.route("**/v1/translate", failure, times=1)
    opened.page.fill("#text", "hello")
    opened.page.clock.run_for(300)
    wait_for_status(opened, message)
    opened.page.clock.run_for(1000)
    seconds = 6 if "busy" in message else 4
    wait_for_status(opened, f"The service {message}, trying again in {seconds} s.")
    assert "trying again in" in (opened.page.locator("#announcement").text_content() or "")
    opened.page.clock.run_for(seconds * 1000)
    wait_for_translation(opened, "HELLO")
    assert opened.page.locator("#status").text_content() == ""
    opened.messages[:] = [text for text in opened.messages if "Failed to load resource" not in text]


def test_error_response_is_shown(open_page: OpenPage, uppercase_server: Any) -> None:
    opened = open_page(uppercase_server)
    opened.page.fill("#text", "crash")
    wait_for_status(opened, "Internal error; the service's log has the details of request")
    assert opened.page.locator("#busy").is_hidden()
    opened.page.fill("#text", "well")
    wait_for_translation(opened, "WELL")
    opened.messages[:] = [text for text in opened.messages if "Failed to load resource" not in text]


def test_key_is_required_and_the_character_limit_is_enforced(open_page: OpenPage, serve: Any, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("open sesame\n")
    server = serve("--api-keys", tmp_path / "keys", "--characters", 30)
    opened = open_page(server)
    opened.page.fill("#text", DATE)
    wait_for_status(opened, "Enter your API key")
    opened.page.get_by_label("API key").fill("open sesame")
    opened.page.locator("#translation .word").first.wait_for()
    opened.page.reload()  # the tab keeps the key
    opened.page.locator("#counter").get_by_text("/ 30").wait_for()
    type_and_translate(opened, DATE)
    sent = len(opened.requests)
    opened.page.fill("#text", "𝒳" * 33)
    wait_for_status(opened, "The text is too long by 3 characters.")
    assert opened.page.locator("#counter").inner_text() == "33 / 30"
    assert len(opened.requests) == sent


def test_keyboard_shortcuts_translate_and_clear(open_page: OpenPage, uppercase_server: Any) -> None:
    opened = open_page(uppercase_server)
    opened.page.clock.install()  # stops the timer that sends the text
    opened.page.focus("#text")
    opened.page.keyboard.type("one two")
    opened.page.keyboard.press("Control+Enter")
    wait_for_translation(opened, "ONE TWO")
    opened.page.keyboard.press("Escape")
    assert opened.page.input_value("#text") == opened.page.locator("#translation").text_content() == ""
    opened.page.keyboard.press("Control+z")
    assert opened.page.input_value("#text") == "one two"


# ── alternatives, alignment and attention ──


def test_click_on_an_alternative_puts_it_into_the_translation(open_page: OpenPage, server: Server) -> None:
    opened = open_page(server, PAIR)
    mock_responses(opened, response(sentence("One.", "Eins.", "Ein."), sentence("Two.", "Zwei.", "Zwo.", "Zwie.")))
    opened.page.fill("#text", "One. Two.")
    wait_for_translation(opened, "Eins.")
    alternatives = opened.page.locator(".alternative")
    assert alternatives.all_inner_texts() == [
        "Zwei.\n−0.25",
        "Zwo.\n−0.50",
        "Zwie.\n−0.75",
    ]  # of the sentence with the caret
    opened.page.keyboard.press("Home")
    alternatives.get_by_text("Ein.").wait_for()
    opened.page.get_by_role("radio", checked=True).focus()
    opened.page.keyboard.press("ArrowRight")
    assert opened.page.get_by_role("radio", checked=True).text_content() == "Zwei."
    alternatives.nth(1).click()
    assert opened.page.locator("#translation").inner_text() == "Eins. Zwo."
    assert [button.get_attribute("aria-pressed") for button in alternatives.all()] == ["false", "true", "false"]


def test_pointing_at_a_word_highlights_its_aligned_words(open_page: OpenPage, server: Server) -> None:
    opened = open_page(server, PAIR)
    mocked = sentence("a b c", "x y", "z", alignment=[[0, 1], [2, 1], [1, 0]])
    mocked["alternatives"][0]["alignment"] = [[2, 0]]
    mock_responses(opened, response(mocked))
    type_and_translate(opened, "  a b c")

    def highlighted(name: str) -> list[str]:
        return opened.page.locator(f".word.{name}").all_text_contents()

    opened.page.get_by_text("y", exact=True).hover()
    assert (highlighted("pointed"), highlighted("linked")) == (["y"], ["a", "c"])
    box = opened.page.locator("#mirror .word >> nth=1").bounding_box()
    assert box
    opened.page.mouse.move(
        box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    )  # the text field is in front of it
    assert (highlighted("pointed"), highlighted("linked")) == (["b"], ["x"])
    opened.page.mouse.move(0, 0)
    assert highlighted("pointed") == highlighted("linked") == []
    opened.page.locator(".alternative").last.click()
    opened.page.locator("#translation .word").hover()
    assert (highlighted("pointed"), highlighted("linked")) == (["z"], ["c"])


def test_attention_is_requested_only_while_its_panel_is_open(open_page: OpenPage, server: Server) -> None:
    opened = open_page(server, PAIR)
    bodies: list[dict[str, Any]] = []
    opened.page.on("request", lambda request: request.post_data and bodies.append(json.loads(request.post_data)))
    type_and_translate(opened, f"May 1, 2030\n{DATE}")
    assert [body.get("attention") for body in bodies] == [None]
    opened.page.click("summary")
    cells = opened.page.locator(".heat-map tbody td")
    cells.first.wait_for()
    assert (bodies[-1]["attention"], bodies[-1]["text"]) == (True, DATE)
    source = opened.page.locator(".attention .line").first
    assert source.inner_text().split()[:-1] == DATE.split()
    opened.page.locator("#translation .sentence").first.click()
    source.get_by_text("May").wait_for()
    assert bodies[-1]["text"] == "May 1, 2030"
    opened.page.click("summary")
    type_and_translate(opened, DATE)
    assert not bodies[-1].get("attention")


# ── address, languages, examples, clipboard ──


def test_url_has_the_selection_and_has_the_text_only_on_request(open_page: OpenPage, server: Server) -> None:
    opened = open_page(server)
    opened.page.select_option("#source", "de")
    type_and_translate(opened, "4. März")
    assert opened.page.evaluate("location.hash") == "#source=de&target=en&model=back"
    opened.page.get_by_role("button", name="Copy link").click()
    wait_for_status(opened, "The link")
    again = open_page(server, opened.page.evaluate("location.hash"))
    again.page.locator("#translation .word").first.wait_for()
    assert again.page.input_value("#text") == "4. März"
    assert again.page.input_value("#model") == "back"
    again.page.locator("#text").press_sequentially("!")
    assert "text" not in again.page.evaluate("location.hash")


@pytest.mark.parametrize("fragment", ["#model=nobody&source=xx&target=__proto__", "#%E0%A4%A"])
def test_invalid_url_fragment_falls_back_to_defaults(open_page: OpenPage, server: Server, fragment: str) -> None:
    opened = open_page(server, fragment)
    type_and_translate(opened, DATE)
    assert opened.page.input_value("#model") == "dates"


def test_buttons_insert_an_example_copy_the_translation_and_swap_the_languages(
    open_page: OpenPage, server: Server
) -> None:
    opened = open_page(server)
    opened.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    example = opened.page.locator("#examples button").first
    assert opened.page.input_value("#text") == ""
    example.click()
    assert opened.page.input_value("#text") == example.text_content() != ""
    opened.page.locator("#translation:not(.stale) .word").first.wait_for()
    result = opened.page.locator("#translation").inner_text()
    opened.page.get_by_role("button", name="Copy", exact=True).click()
    wait_for_status(opened, "Copied.")
    assert opened.page.evaluate("navigator.clipboard.readText()") == result
    opened.page.get_by_role("button", name="Swap languages").click()
    assert opened.page.input_value("#text") == result
    assert (opened.page.input_value("#source"), opened.page.input_value("#model")) == ("de", "back")


def test_source_language_is_detected(open_page: OpenPage, server: Server) -> None:
    opened = open_page(server, "#source=auto")
    type_and_translate(opened, "Dienstag, der 4. März, und das ist ein deutscher Satz")
    wait_for_status(opened, "to English with back")
    type_and_translate(opened, "This is the end of an English sentence")
    wait_for_status(opened, "to German with dates")


# ── rendering ──


def test_markup_in_text_is_never_interpreted_as_html(open_page: OpenPage, server: Server) -> None:
    opened = open_page(server, PAIR)
    axis = {"labels": [HOSTILE, "</s>"], "words": [0, 1]}
    level = [{"name": HOSTILE, "kind": "cross", "rows": axis, "columns": axis, "weights": [[[9000, 1000], [1, 9999]]]}]
    mocked = sentence(HOSTILE, HOSTILE, f"{HOSTILE} {HOSTILE}", alignment=[[0, 0]])
    attention = {"scale": 10000, "sentences": [{"source": HOSTILE, "target": HOSTILE, "levels": {"pieces": level}}]}
    mock_responses(opened, response(mocked), response({**mocked, "attention": attention}))
    type_and_translate(opened, HOSTILE)
    assert opened.page.locator("#translation").inner_text() == HOSTILE
    assert opened.page.locator(".alternative").last.inner_text() == f"{HOSTILE} {HOSTILE}\n−0.50"
    opened.page.click("summary")
    opened.page.locator(".heat-map td").last.hover()
    assert opened.page.locator(".heat-map thead th").first.text_content() == HOSTILE
    opened.page.unroute("**/v1/translate")
    translation = type_and_translate(opened, f"{HOSTILE} {DATE}")
    assert translation
    assert opened.page.locator("img:not(h1 img)").count() == 0
    assert opened.page.title() == "Saccade"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_axe_finds_no_accessibility_violations(open_page: OpenPage, server: Server, scheme: str, width: int) -> None:
    size = {"width": width, "height": 800}
    opened = open_page(server, f"{PAIR}&attention=shown", color_scheme=scheme, viewport=size, bypass_csp=True)
    assert opened.accessibility_violations() == []
    type_and_translate(opened, f"{DATE}\nMay 1, 2030")
    opened.page.locator(".heat-map td").first.wait_for()
    assert opened.accessibility_violations() == []
    assert opened.page.evaluate("document.documentElement.scrollWidth") == width


def test_text_field_and_its_copy_have_the_same_layout(open_page: OpenPage, server: Server) -> None:
    opened = open_page(server, PAIR)
    long = " ".join(f"Wort{number}" for number in range(400))
    mock_responses(opened, response(sentence(long, long)), response(sentence("مرحبا hello", "مرحبا hello")))
    type_and_translate(opened, long)
    heights = "[text.scrollHeight, text.clientHeight, mirror.clientHeight]"
    assert len(set(opened.page.evaluate(heights))) == 1
    assert opened.page.locator("#translation").locator("..").get_attribute("tabindex") == "0"  # it scrolls
    opened.page.evaluate("text.parentElement.scrollTop = 1e9")
    wait_until(lambda: opened.page.evaluate("translation.parentElement.scrollTop") > 0)  # and the source scrolls along
    type_and_translate(opened, "مرحبا hello")
    word = opened.page.locator("#mirror .word").first.bounding_box()
    pane = opened.page.locator("#mirror").bounding_box()
    assert word
    assert pane
    assert word["x"] > pane["x"] + pane["width"] / 2
