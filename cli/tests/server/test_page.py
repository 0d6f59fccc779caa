"""The page at `/`: its policy, what it asks the server, and itself in a browser.

`LLB_BROWSER` is a Chromium of the machine, which the package playwright drives. A browser is not
among the tools that this project requires, and is never installed: without one, its tests are
skipped with a line of `make test-cli`, also if LLB_REQUIRE_ALL is set.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import signal
import urllib.request
from html.parser import HTMLParser
from typing import Any, Iterator, List, Optional, Tuple

import pytest
from conftest import ENDLESS, EXPECTED, MODELS, TOOLS, Server
from test_http import GOOD, WRONG

EXPLAIN = "/v1/explain"
BROWSER = os.environ.get("LLB_BROWSER")
try:
    from playwright.sync_api import Page, expect, sync_playwright
except ImportError:
    sync_playwright = None
else:
    # Not a measurement: machines are busy.
    expect.set_options(timeout=30_000)


class Inline(HTMLParser):
    """`found` has the inline scripts and styles of a page, as a browser sees them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: List[Tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: List[Tuple[str, Optional[str]]]) -> None:
        if tag in ("script", "style"):
            self.found.append((tag, ""))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem:
            name, content = self.found.pop()
            self.found.append((name, content + data))


def test_the_policy_allows_the_page_and_nothing_else(server: Server) -> None:
    with urllib.request.urlopen(server.url + "/", timeout=30) as response:
        page = response.read().decode()
        headers = response.headers
    assert headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(
        rule.strip().split(" ", 1) for rule in headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    inline = Inline()
    inline.feed(page)
    assert sorted(name for name, _ in inline.found) == ["script", "style"]
    for name, content in inline.found:
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert policy[f"{name}-src"] == f"'sha256-{digest}'"
    # No other host, and nothing that the policy would stop.
    assert not re.search(r"https?:|\bsrc=|//\w+\.|@import|url\(|\sstyle=|\son\w+=", page)


def test_a_key_protects_all_but_the_page() -> None:
    server = Server(str(MODELS / "text.gguf"), env={"LLB_API_KEY": "secret-key"})
    try:
        assert "<title>llb</title>" in server.get("/")
        assert server.post(EXPLAIN, GOOD)[0] == 401
        key = {"Authorization": "Bearer secret-key"}
        assert server.post(EXPLAIN, {**GOOD, "model": "text"}, key)[0] == 200
    finally:
        assert server.stop() == 0


def test_explain_shows_the_prompt(server: Server) -> None:
    request = {"model": "no_tools", "messages": GOOD["messages"], "tools": TOOLS}
    status, reply, _ = server.post(EXPLAIN, request)
    assert (status, reply["type"]) == (200, "explanation")
    prompt = reply["prompt"].encode()
    parts = [(prompt[span["start"] : span["end"]], span.get("path")) for span in reply["spans"]]
    assert b"".join(text for text, _ in parts) == prompt
    assert (b"secret-prompt", "messages[0].content") in parts
    assert reply["polyfills_applied"] == ["tools"]
    assert reply["prompt_tokens"] > 0
    # Another client's request is not compared.
    assert "cache_break" not in reply
    # The members of a stream are accepted, and nothing is generated.
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    assert server.post(EXPLAIN, {**request, **stream})[1]["prompt"] == reply["prompt"]
    off = server.post(EXPLAIN, {**GOOD, "polyfills": {"apply_polyfills": False}})[1]
    assert off["polyfills_applied"] == []


def test_explain_refuses_wrong_requests(server: Server) -> None:
    fields = "model messages tools tool_choice polyfills response_format stream n temperature stop"
    for field in fields.split():
        for value in WRONG:
            status, reply, _ = server.post(EXPLAIN, {**GOOD, field: value})
            if status != 200:
                assert status in (400, 404), (field, value, reply)
                assert set(reply["error"]) == {"message", "type", "param", "code"}
    status, reply, _ = server.post(EXPLAIN, {**GOOD, "messages": [*GOOD["messages"], 1]})
    assert (status, reply["error"]["param"]) == (400, "messages[1]")
    assert server.post(EXPLAIN, {**GOOD, "polyfills": {"polyfill_nonsense": True}})[0] == 400
    assert server.post(EXPLAIN, {**GOOD, "functions": []})[0] == 400
    assert server.post(EXPLAIN, b"{")[0] == 400
    assert server.post(EXPLAIN, GOOD, {"Origin": "https://example.org"})[0] == 403


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if sync_playwright is None or not BROWSER:
        pytest.skip("LLB_BROWSER is not set, or the package playwright is not installed")
    with sync_playwright() as playwright:
        # Root has no sandbox in Chromium.
        running = playwright.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"]
        )
        yield running
        running.close()


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Page]:
    yield from opened(browser, server)


def opened(browser: Any, server: Server, **options: Any) -> Iterator[Page]:
    """The page, of which nothing fails and nothing is refused by its policy."""
    context = browser.new_context(**options)
    page = context.new_page()
    problems: list = []
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(server.url + "/")
    yield page
    context.close()
    # A browser logs each error status.
    assert not [text for text in problems if "Failed to load resource" not in text]


def send(page: Page, model: str, text: str = "secret-prompt") -> None:
    page.get_by_role("combobox", name="Model", exact=True).select_option(model)
    page.get_by_label("Message").fill(text)
    page.get_by_label("Message").press("Enter")


def test_chat_in_a_browser(page: Page) -> None:
    send(page, "text")
    expect(page.locator(".turn.assistant .text")).to_have_text(EXPECTED["text"])
    expect(page.get_by_role("status").first).to_contain_text("tokens")
    expect(page.locator("#prompt .user-text").first).to_have_text("secret-prompt")
    expect(page.locator("#tokens")).to_contain_text("left in the context")
    page.get_by_role("button", name="New chat").click()
    expect(page.locator(".turn")).to_have_count(0)


def test_reasoning_in_a_browser(page: Page) -> None:
    send(page, "reasoning")
    expect(page.locator("details summary")).to_have_text("Reasoning")
    expect(page.locator(".turn.assistant > .text")).not_to_be_empty()
    reasoning = page.locator("details .text").text_content()
    assert reasoning and reasoning not in page.locator(".turn.assistant > .text").inner_text()


def test_tool_calls_in_a_browser(page: Page) -> None:
    page.get_by_role("tab", name="Request").click()
    page.get_by_label("Tools, as JSON").fill("[{")
    expect(page.locator("#tools-error")).not_to_be_empty()
    page.get_by_label("Tools, as JSON").fill(json.dumps(TOOLS))
    expect(page.locator("#tools-error")).to_be_empty()
    send(page, "tool_call")
    expect(page.get_by_role("heading", name="Calls get_weather")).to_be_visible()
    result = page.get_by_label("Result of get_weather")
    expect(result).to_be_focused()
    result.fill("12 degrees")
    page.get_by_role("button", name="Give result").click()
    expect(page.locator(".turn.assistant")).to_have_count(2)
    page.get_by_role("tab", name="Prompt").click()
    expect(page.locator("#prompt .tool").first).to_have_text("12 degrees")


def test_polyfills_in_a_browser(page: Page) -> None:
    page.get_by_role("combobox", name="Model", exact=True).select_option("no_tools")
    page.get_by_role("tab", name="Request").click()
    page.get_by_role("button", name="Insert an example tool").click()
    page.get_by_label("Message").fill("secret-prompt")
    page.get_by_role("tab", name="Request").press("ArrowLeft")
    expect(page.locator("#applied")).to_contain_text("tools")
    expect(page.locator("#prompt .tools").first).to_be_visible()
    page.get_by_label("tools", exact=True).uncheck()
    expect(page.locator("#prompt .tools")).to_have_count(0)
    page.get_by_role("tab", name="Capabilities").click()
    row = page.get_by_role("row").filter(has_text="supports_tools").first
    expect(row.get_by_role("cell").first).to_have_text("no")


def test_stop_in_a_browser(browser: Any) -> None:
    server = Server(str(MODELS / "long.gguf"), "--n-ctx", "32768")
    pages = opened(browser, server)
    try:
        page = next(pages)
        # The page has no field for a grammar, which keeps the model generating.
        page.route(
            "**/v1/chat/completions",
            lambda route: route.continue_(
                post_data=json.dumps({**json.loads(route.request.post_data), **ENDLESS})
            ),
        )
        send(page, "long")
        expect(page.locator(".turn.assistant .text")).to_contain_text("abab")
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("#status")).to_have_text("Stopped.")
        server.wait_for("llb_requests_running", 0)
        expect(page.get_by_role("button", name="Send")).to_be_enabled()
        next(pages, None)
    finally:
        server.stop(signal.SIGKILL)


def test_a_key_in_a_browser(browser: Any) -> None:
    server = Server(str(MODELS / "text.gguf"), env={"LLB_API_KEY": "secret-key"})
    pages = opened(browser, server)
    try:
        page = next(pages)
        expect(page.locator("#status")).to_contain_text("the API key is missing")
        expect(page.get_by_label("API key")).to_be_focused()
        page.keyboard.type("secret-key")
        page.keyboard.press("Tab")
        expect(page.locator("#model option")).to_have_count(1)
        send(page, "text")
        expect(page.locator(".turn.assistant .text")).to_have_text(EXPECTED["text"])
        assert page.evaluate("localStorage.length + sessionStorage.length") == 0
        next(pages, None)
    finally:
        server.stop(signal.SIGKILL)


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_sizes_in_a_browser(browser: Any, server: Server, width: int, scheme: str) -> None:
    size = {"width": width, "height": 800}
    for page in opened(browser, server, viewport=size, color_scheme=scheme):
        send(page, "text")
        expect(page.locator(".turn.assistant .text")).to_have_text(EXPECTED["text"])
        for name in ["Prompt", "Request", "Capabilities"]:
            page.get_by_role("tab", name=name).click()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
