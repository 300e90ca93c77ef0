"""The served page in a real browser, in front of the real server."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from serve.wire import Server, until
from view.browser import BrowserPage, chromium

DATE = "Tuesday, March 4, 2031"
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
PAIR = "#source=en&target=de&model=dates"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def obedient(faulty: Any) -> Any:
    """A server whose model writes in capitals."""
    return faulty()


Open = Callable[..., BrowserPage]


@pytest.fixture
def visit(browser: Any) -> Iterator[Open]:
    """Open the page of a server. In the end it must not have complained, nor asked anyone else for anything."""
    opened: list[tuple[Server, BrowserPage]] = []

    def start(server: Server, fragment: str = "", **settings: Any) -> BrowserPage:
        opened.append((server, BrowserPage(browser, f"{server.address}/{fragment}", **settings)))
        opened[-1][1].page.locator("#counter:not(:empty)").wait_for()
        return opened[-1][1]

    yield start
    for server, each in opened:
        assert each.messages == []
        assert all(url.startswith(server.address) for url in each.requests)
        each.page.close()


def sentence(source: str, *ways: str, links: list[list[int]] | None = None) -> dict[str, Any]:
    """A sentence as the service answers it; each of `ways` is a little worse than the one before."""
    best, *others = [
        {"text": text, "score": -0.25 * number, "links": [], "attention": None} for number, text in enumerate(ways, 1)
    ]
    return {"source": source, **best, "alternatives": others, "links": links}


def answer(*sentences: dict[str, Any]) -> dict[str, Any]:
    text = " ".join(each["text"] for each in sentences)
    translation = {"text": text, "alternatives": [], "sentences": list(sentences)}
    return {"model": "dates", "source": "en", "target": "de", "detected": None, "translations": [translation]}


def answering(visit: BrowserPage, *answers: dict[str, Any]) -> list[dict[str, Any]]:
    """Let these be the answers, the last of them from then on; returns what is asked for, as it comes."""
    asked: list[dict[str, Any]] = []

    def reply(route: Any) -> None:
        asked.append(route.request.post_data_json)
        route.fulfill(json=answers[min(len(asked), len(answers)) - 1])

    visit.page.route("**/v1/translate", reply)
    return asked


def asked_for(request: Any) -> str | None:
    """The text that the page wants translated, if that is what it wants."""
    return request.post_data_json["text"] if request.url.endswith("/v1/translate") else None


def shows(visit: BrowserPage, text: str) -> None:
    """Wait until this is the translation."""
    visit.page.locator("#translation:not(.stale)").get_by_text(text, exact=True).wait_for()


def status(visit: BrowserPage, text: str) -> None:
    visit.page.locator("#status").get_by_text(text).wait_for()


def translated(visit: BrowserPage, text: str) -> str:
    """Type a text and read what comes out."""
    visit.page.fill("#text", text)
    visit.page.locator("#translation:not(.stale) .word").first.wait_for()
    return visit.page.locator("#translation").inner_text()


# ── translating ──


def test_it_translates_what_is_typed_with_the_model_of_the_pair(visit: Open, server: Server) -> None:
    page = visit(server).page
    assert page.locator("#source option").all_text_contents() == ["English", "German", "Detect language"]
    for name, source, target in (("dates", "en", "de"), ("back", "de", "en")):
        page.select_option("#source", source)
        page.fill("#text", "")
        # on a slow machine the page may ask before the last key is pressed, too
        with page.expect_request(lambda request: asked_for(request) == DATE) as request:
            page.locator("#text").press_sequentially(DATE)
        found = server.post("/v1/translate", request.value.post_data_json).json()
        assert (found["model"], found["target"]) == (name, target)
        page.locator("#translation:not(.stale)").get_by_text(found["translations"][0]["text"], exact=True).wait_for()
        assert page.locator("#translation").get_attribute("lang") == target
        assert page.locator("#aloud").text_content() == found["translations"][0]["text"]


def test_typing_on_cancels_the_old_request_and_its_answer_is_never_shown(visit: Open, obedient: Any) -> None:
    opened = visit(obedient)
    cancelled: list[str] = []
    opened.page.on("requestfailed", lambda request: cancelled.append(request.post_data_json["text"]))
    with opened.page.expect_request("**/v1/translate"):
        opened.page.fill("#text", "hold it")
    assert opened.page.locator("#busy").is_visible()
    opened.page.fill("#text", "newer")
    shows(opened, "NEWER")
    assert cancelled == ["hold it"]
    obedient.release("it")
    opened.page.fill("#text", "newest")
    shows(opened, "NEWEST")
    assert opened.page.locator("#busy").is_hidden()


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (lambda route: route.fulfill(status=429, json={"error": "full"}, headers={"Retry-After": "7"}), "is busy"),
        (lambda route: route.fulfill(status=503, json={"error": "late"}, headers={"Retry-After": "7"}), "is busy"),
        (lambda route: route.abort("connectionrefused"), "does not answer"),
    ],
)
def test_a_service_that_is_busy_or_away_is_asked_again(
    visit: Open, obedient: Any, trouble: Callable[[Any], None], said: str
) -> None:
    opened = visit(obedient)
    opened.page.clock.install()
    opened.page.route("**/v1/translate", trouble, times=1)
    opened.page.fill("#text", "hello")
    opened.page.clock.run_for(300)
    status(opened, said)
    opened.page.clock.run_for(1000)
    seconds = 6 if "busy" in said else 4
    status(opened, f"The service {said}, trying again in {seconds} s.")
    assert "trying again in" in (opened.page.locator("#aloud").text_content() or "")
    opened.page.clock.run_for(seconds * 1000)
    shows(opened, "HELLO")
    assert opened.page.locator("#status").text_content() == ""
    opened.messages[:] = [each for each in opened.messages if "Failed to load resource" not in each]


def test_a_refusal_is_said_in_words(visit: Open, obedient: Any) -> None:
    opened = visit(obedient)
    opened.page.fill("#text", "crash")
    status(opened, "The request failed; the service's log has more under")
    assert opened.page.locator("#busy").is_hidden()
    opened.page.fill("#text", "well")
    shows(opened, "WELL")
    opened.messages[:] = [each for each in opened.messages if "Failed to load resource" not in each]


def test_a_key_is_asked_for_and_the_limit_is_kept(visit: Open, serve: Any, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("open sesame\n")
    server = serve("--api-keys", tmp_path / "keys", "--characters", 30)
    opened = visit(server)
    opened.page.fill("#text", DATE)
    status(opened, "Enter your API key")
    opened.page.get_by_label("API key").fill("open sesame")
    opened.page.locator("#translation .word").first.wait_for()
    opened.page.reload()  # the key stays with the tab
    opened.page.locator("#counter").get_by_text("/ 30").wait_for()
    translated(opened, DATE)
    sent = len(opened.requests)
    opened.page.fill("#text", "𝒳" * 33)
    status(opened, "The text is too long by 3 characters.")
    assert opened.page.locator("#counter").inner_text() == "33 / 30"
    assert len(opened.requests) == sent


def test_the_keyboard(visit: Open, obedient: Any) -> None:
    opened = visit(obedient)
    opened.page.clock.install()  # nothing is sent by the passing of time
    opened.page.focus("#text")
    opened.page.keyboard.type("one two")
    opened.page.keyboard.press("Control+Enter")
    shows(opened, "ONE TWO")
    opened.page.keyboard.press("Escape")
    assert opened.page.input_value("#text") == opened.page.locator("#translation").text_content() == ""
    opened.page.keyboard.press("Control+z")
    assert opened.page.input_value("#text") == "one two"


# ── what else a translation has ──


def test_another_way_to_say_a_sentence_is_put_in_by_a_click(visit: Open, server: Server) -> None:
    opened = visit(server, PAIR)
    answering(opened, answer(sentence("One.", "Eins.", "Ein."), sentence("Two.", "Zwei.", "Zwo.", "Zwie.")))
    opened.page.fill("#text", "One. Two.")
    shows(opened, "Eins.")
    ways = opened.page.locator(".way")
    assert ways.all_inner_texts() == ["Zwei.\n−0.25", "Zwo.\n−0.50", "Zwie.\n−0.75"]  # of what is being written
    opened.page.keyboard.press("Home")
    ways.get_by_text("Ein.").wait_for()
    opened.page.get_by_role("radio", checked=True).focus()
    opened.page.keyboard.press("ArrowRight")
    assert opened.page.get_by_role("radio", checked=True).text_content() == "Zwei."
    ways.nth(1).click()
    assert opened.page.locator("#translation").inner_text() == "Eins. Zwo."
    assert [way.get_attribute("aria-pressed") for way in ways.all()] == ["false", "true", "false"]


def test_pointing_at_a_word_lights_those_that_belong_to_it(visit: Open, server: Server) -> None:
    opened = visit(server, PAIR)
    found = sentence("a b c", "x y", "z", links=[[0, 1], [2, 1], [1, 0]])
    found["alternatives"][0]["links"] = [[2, 0]]
    answering(opened, answer(found))
    translated(opened, "  a b c")

    def lit(how: str) -> list[str]:
        return opened.page.locator(f".word.{how}").all_text_contents()

    opened.page.get_by_text("y", exact=True).hover()
    assert (lit("on"), lit("linked")) == (["y"], ["a", "c"])
    box = opened.page.locator("#mirror .word >> nth=1").bounding_box()
    assert box
    opened.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)  # the field lies above it
    assert (lit("on"), lit("linked")) == (["b"], ["x"])
    opened.page.mouse.move(0, 0)
    assert lit("on") == lit("linked") == []
    opened.page.locator(".way").last.click()
    opened.page.locator("#translation .word").hover()
    assert (lit("on"), lit("linked")) == (["z"], ["c"])


def test_attention_is_asked_for_while_its_panel_is_open(visit: Open, server: Server) -> None:
    opened = visit(server, PAIR)
    asked: list[dict[str, Any]] = []
    opened.page.on("request", lambda request: request.post_data and asked.append(json.loads(request.post_data)))
    translated(opened, f"May 1, 2030\n{DATE}")
    assert [each.get("attention") for each in asked] == [None]
    opened.page.click("summary")
    cells = opened.page.locator(".heat-map tbody td")
    cells.first.wait_for()
    assert (asked[-1]["attention"], asked[-1]["text"]) == (True, DATE)
    source = opened.page.locator(".attention .line").first
    assert source.inner_text().split()[:-1] == DATE.split()
    opened.page.locator("#translation .sentence").first.click()
    source.get_by_text("May").wait_for()
    assert asked[-1]["text"] == "May 1, 2030"
    opened.page.click("summary")
    translated(opened, DATE)
    assert not asked[-1].get("attention")


# ── getting about ──


def test_the_address_holds_the_choice_and_the_text_only_if_asked(visit: Open, server: Server) -> None:
    opened = visit(server)
    opened.page.select_option("#source", "de")
    translated(opened, "4. März")
    assert opened.page.evaluate("location.hash") == "#source=de&target=en&model=back"
    opened.page.get_by_role("button", name="Link to this").click()
    status(opened, "The link")
    again = visit(server, opened.page.evaluate("location.hash"))
    again.page.locator("#translation .word").first.wait_for()
    assert again.page.input_value("#text") == "4. März"
    assert again.page.input_value("#model") == "back"
    again.page.locator("#text").press_sequentially("!")
    assert "text" not in again.page.evaluate("location.hash")


@pytest.mark.parametrize("fragment", ["#model=nobody&source=xx&target=__proto__", "#%E0%A4%A"])
def test_a_mistaken_address_falls_back(visit: Open, server: Server, fragment: str) -> None:
    opened = visit(server, fragment)
    translated(opened, DATE)
    assert opened.page.input_value("#model") == "dates"


def test_languages_are_swapped_examples_clicked_and_the_translation_copied(visit: Open, server: Server) -> None:
    opened = visit(server)
    opened.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    example = opened.page.locator("#examples button").first
    assert opened.page.input_value("#text") == ""
    example.click()
    assert opened.page.input_value("#text") == example.text_content() != ""
    opened.page.locator("#translation:not(.stale) .word").first.wait_for()
    result = opened.page.locator("#translation").inner_text()
    opened.page.get_by_role("button", name="Copy", exact=True).click()
    status(opened, "Copied.")
    assert opened.page.evaluate("navigator.clipboard.readText()") == result
    opened.page.get_by_role("button", name="Swap languages").click()
    assert opened.page.input_value("#text") == result
    assert (opened.page.input_value("#source"), opened.page.input_value("#model")) == ("de", "back")


def test_the_language_is_found_out(visit: Open, server: Server) -> None:
    opened = visit(server, "#source=auto")
    translated(opened, "Dienstag, der 4. März, und das ist ein deutscher Satz")
    status(opened, "into English by back")
    translated(opened, "This is the end of an English sentence")
    status(opened, "into German by dates")


# ── looks ──


def test_hostile_text_stays_text_wherever_it_comes_from(visit: Open, server: Server) -> None:
    opened = visit(server, PAIR)
    axis = {"labels": [HOSTILE, "</s>"], "words": [0, 1]}
    level = [{"name": HOSTILE, "kind": "cross", "rows": axis, "columns": axis, "weights": [[[9000, 1000], [1, 9999]]]}]
    found = sentence(HOSTILE, HOSTILE, f"{HOSTILE} {HOSTILE}", links=[[0, 0]])
    inside = {"scale": 10000, "sentences": [{"source": HOSTILE, "target": HOSTILE, "levels": {"pieces": level}}]}
    answering(opened, answer(found), answer({**found, "attention": inside}))
    translated(opened, HOSTILE)
    assert opened.page.locator("#translation").inner_text() == HOSTILE
    assert opened.page.locator(".way").last.inner_text() == f"{HOSTILE} {HOSTILE}\n−0.50"
    opened.page.click("summary")
    opened.page.locator(".heat-map td").last.hover()
    assert opened.page.locator(".heat-map thead th").first.text_content() == HOSTILE
    opened.page.unroute("**/v1/translate")
    real = translated(opened, f"{HOSTILE} {DATE}")
    assert real
    assert opened.page.locator("img:not(h1 img)").count() == 0
    assert opened.page.title() == "Saccade"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_axe_finds_nothing_serious(visit: Open, server: Server, scheme: str, width: int) -> None:
    size = {"width": width, "height": 800}
    opened = visit(server, f"{PAIR}&attention=shown", color_scheme=scheme, viewport=size, bypass_csp=True)
    assert opened.accessibility_violations() == []
    translated(opened, f"{DATE}\nMay 1, 2030")
    opened.page.locator(".heat-map td").first.wait_for()
    assert opened.accessibility_violations() == []
    assert opened.page.evaluate("document.documentElement.scrollWidth") == width


def test_long_text_and_right_to_left_text_keep_both_sheets_alike(visit: Open, server: Server) -> None:
    opened = visit(server, PAIR)
    long = " ".join(f"Wort{number}" for number in range(400))
    answering(opened, answer(sentence(long, long)), answer(sentence("مرحبا hello", "مرحبا hello")))
    translated(opened, long)
    heights = "[text.scrollHeight, text.clientHeight, mirror.clientHeight]"
    assert len(set(opened.page.evaluate(heights))) == 1
    assert opened.page.locator("#translation").locator("..").get_attribute("tabindex") == "0"  # it scrolls
    opened.page.evaluate("text.parentElement.scrollTop = 1e9")
    until(lambda: opened.page.evaluate("translation.parentElement.scrollTop") > 0)  # and so does the other one
    translated(opened, "مرحبا hello")
    word = opened.page.locator("#mirror .word").first.bounding_box()
    pane = opened.page.locator("#mirror").bounding_box()
    assert word
    assert pane
    assert word["x"] > pane["x"] + pane["width"] / 2
