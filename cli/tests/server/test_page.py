"""The page at `/`: its policy, what it asks the server, and itself in a browser.

`LLB_BROWSER` is a Chromium of the machine, which the package playwright drives. A browser is not
among the tools that this project requires, and is never installed: without one, its tests are
skipped with a line of `make test-cli`, also if LLB_REQUIRE_ALL is set.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import os
import pathlib
import re
import signal
import threading
import urllib.request
from html.parser import HTMLParser
from typing import Any, Iterator, List, Optional, Tuple

import pytest
from conftest import ENDLESS, EXPECTED, MODELS, TOOLS, Server
from test_http import GOOD, WRONG

EXPLAIN = "/v1/explain"
BROWSER = os.environ.get("LLB_BROWSER")
# A folder for screenshots of the page.
SCREENSHOTS = os.environ.get("LLB_SCREENSHOTS")
try:
    import axe_playwright_python

    AXE = pathlib.Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text("utf-8")
except ImportError:
    AXE = ""
try:
    from playwright.sync_api import Page, expect, sync_playwright
except ImportError:
    sync_playwright = None
else:
    # A generous limit, because machines may be busy.
    expect.set_options(timeout=30_000)


class Inline(HTMLParser):
    """`found` contains the inline scripts and styles of a page, as a browser sees them."""

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
    # The page refers to no other host, and uses nothing that the policy would block.
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
    # The prompt is not compared with another client's request.
    assert "cache_break" not in reply
    # The members of a stream are accepted, but nothing is generated.
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    assert server.post(EXPLAIN, {**request, **stream})[1]["prompt"] == reply["prompt"]
    # A conversation whose calls have no results yet is explained.
    call = {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    said = {"role": "assistant", "content": "", "tool_calls": [call]}
    request["messages"] = [*GOOD["messages"], said, *GOOD["messages"]]
    status, reply, _ = server.post(EXPLAIN, request)
    codes = [(note["code"], note.get("message_index")) for note in reply["diagnostics"]]
    assert (status, ("tool_call_without_result", 1) in codes) == (200, True), codes
    off = server.post(EXPLAIN, {**GOOD, "polyfills": {"apply_polyfills": False}})[1]
    assert off["polyfills_applied"] == []


def test_a_template_is_described_without_a_model() -> None:
    server = Server(*(str(MODELS / f"{name}.gguf") for name in ["text", "tool_use"]))
    try:
        request = {"model": "tool_use", "messages": GOOD["messages"], "tools": TOOLS}
        status, own, _ = server.post("/v1/template", request)
        assert (status, own["object"]) == (200, "template")
        assert [each["name"] for each in own["chat_template"]] == ["default", "tool_use"]
        assert own["eos_token"] == "<|im_end|>" and "get_weather" in own["prompt"]
        text = "{{ bos_token }}{% for m in messages %}\n{{ m.content }}{% endfor %}"
        edited = {**request, "chat_template": text, "bos_token": "<b>"}
        reply = server.post("/v1/template", edited)[1]
        assert reply["chat_template"] == text and reply["prompt"].startswith("<b>")
        assert "drops_tools" in {finding["code"] for finding in reply["findings"]}
        # A fault in the template is a finding, not an error of the request.
        status, reply, _ = server.post("/v1/template", {**edited, "chat_template": "a\n{{ b }"})
        assert (status, reply["findings"][0]["line"]) == (200, 2)
        refusing = "{{ raise_exception('never') }}"
        status, reply, _ = server.post("/v1/template", {**edited, "chat_template": refusing})
        assert status == 200 and "never" in reply["render_error"]["message"]
        for field in ["model", "chat_template", "bos_token", "messages", "tools", "polyfills"]:
            for value in WRONG:
                status, reply, _ = server.post("/v1/template", {**edited, field: value})
                if status != 200:
                    assert status in (400, 404), (field, value, reply)
                    assert set(reply["error"]) == {"message", "type", "param", "code"}
        listed = json.loads(server.get("/v1/models"))["data"]
        assert [each["id"] for each in listed if each["loaded"]] == ["text"]
    finally:
        assert server.stop() == 0


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
        # Chromium has no sandbox for root.
        running = playwright.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"]
        )
        yield running
        running.close()


class BlankPage(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_page_of_another_site_asks_if_it_is_permitted(browser: Any) -> None:
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), BlankPage)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    origin = f"http://127.0.0.1:{site.server_port}"
    ask = """([url, body]) => fetch(url + "/v1/chat/completions", {
        method: "POST", body: JSON.stringify(body),
        headers: {"content-type": "application/json", authorization: "Bearer k"},
    }).then(reply => reply.json(), error => error.name)"""
    page = browser.new_page()
    page.goto(origin)
    for options, permitted in [(["--cors-origin", origin], True), ([], False)]:
        server = Server(str(MODELS / "text.gguf"), *options, env={"LLB_API_KEY": "k"})
        reply = page.evaluate(ask, [server.url, GOOD])
        if permitted:
            assert reply["choices"][0]["message"]["content"] == EXPECTED["text"]
        else:
            assert reply == "TypeError"
        assert server.stop() == 0
    page.close()
    site.shutdown()
    site.server_close()


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Page]:
    yield from opened(browser, server)


def opened(browser: Any, server: Server, **options: Any) -> Iterator[Page]:
    """Opens the page. Nothing on it may fail or be refused by its policy."""
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
        # The page has no field for a grammar. This adds one, which keeps the model generating.
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


def test_the_template_editor_in_a_browser(page: Page) -> None:
    page.get_by_role("combobox", name="Model", exact=True).select_option("text")
    page.get_by_role("tab", name="Template").click()
    editor = page.get_by_label("Chat template (Jinja)")
    expect(editor).to_have_value(re.compile("messages"))
    own = editor.input_value()
    expect(page.locator("#draft-prompt .user-text")).to_have_text("Hello")
    # The prompt is updated while typing, and includes the message being typed.
    page.get_by_label("Message").fill("secret-prompt")
    editor.fill("{% for m in messages %}\n<{{ m.role }}>{{ m.content }}\n{% endfor %}")
    expect(page.locator("#draft-prompt")).to_have_text("<user>secret-prompt\n")
    expect(page.locator("#findings")).to_contain_text("[drops_tools]")
    editor.fill("{% for m in messages %}\n{{ m.role }\n{% endfor %}")
    expect(page.locator("#verdict")).to_have_text("1 error, 0 warnings, 0 remarks")
    expect(page.locator("#numbers b")).to_have_text("● 2")
    # With the keyboard, from the editor to its first finding and back to the line.
    editor.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(editor).to_be_focused()
    assert editor.evaluate("e => e.value.slice(e.selectionStart, e.selectionEnd)") == "{{ m.role }"
    page.get_by_role("button", name="Take the model's").click()
    expect(editor).to_have_value(own)
    expect(page.locator("#verdict")).to_contain_text("0 errors")


def test_probabilities_in_a_browser(page: Page) -> None:
    page.get_by_label("Probabilities").check()
    send(page, "text")
    reply = page.locator(".turn.assistant .text")
    expect(reply).to_have_text(EXPECTED["text"])
    reply.locator(".token").first.hover()
    expect(page.get_by_role("tooltip")).to_contain_text("%")
    page.mouse.move(0, 0)
    expect(page.get_by_role("tooltip")).to_be_hidden()
    reply.focus()
    page.keyboard.press("End")
    last = reply.locator(".token").last
    expect(last).to_have_class(re.compile("current"))
    expect(page.get_by_role("tooltip")).to_contain_text(json.dumps(last.text_content()))


def test_plots_in_a_browser(page: Page) -> None:
    page.get_by_role("tab", name="Load").click()
    send(page, "long")
    plots = page.get_by_role("tabpanel").get_by_role("img")
    expect(plots).to_have_count(4)
    expect(plots.nth(1)).to_have_attribute("aria-label", re.compile(r"at most [1-9]\d*$"))
    expect(plots.nth(1).locator("path").first).to_have_attribute("d", re.compile("L89"))


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_sizes_in_a_browser(browser: Any, server: Server, width: int, scheme: str) -> None:
    """Nothing is cut off, and axe-core finds no violation in any panel."""
    size = {"width": width, "height": 800}
    for page in opened(browser, server, viewport=size, color_scheme=scheme):
        page.get_by_label("Probabilities").check()
        page.get_by_role("tab", name="Request").click()
        page.get_by_role("button", name="Insert an example tool").click()
        send(page, "tool_call")
        expect(page.get_by_label("Result of get_weather")).to_be_visible()
        for name in ["Prompt", "Request", "Template", "Capabilities", "Load"]:
            page.get_by_role("tab", name=name).click()
            loaded = {"Template": "#findings li", "Load": "#plots figure"}.get(name)
            if loaded:
                expect(page.locator(loaded).first).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            if SCREENSHOTS:
                page.screenshot(path=f"{SCREENSHOTS}/{scheme}-{width}-{name}.png")
            if not AXE:
                continue
            page.evaluate(AXE)
            violations = page.evaluate("async () => (await axe.run()).violations")
            found = [(each["id"], [node["html"] for node in each["nodes"]]) for each in violations]
            assert not found, (name, found)
