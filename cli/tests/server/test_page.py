"""The page at `/`: its policy, what it asks the server, and itself in a browser.

`LLB_BROWSER` is a Chromium of the machine, which the package playwright drives. A browser is not
among the tools that this project requires, and is never installed: without one, its tests are
skipped with a line of `make test-cli`, also if LLB_REQUIRE_ALL is set.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import http.server
import json
import os
import pathlib
import re
import signal
import threading
import time
import urllib.request
from html.parser import HTMLParser
from typing import Any, Iterator, List, Optional, Tuple

import pytest
from conftest import ENDLESS, EXPECTED, MODELS, SHIFT, TOOLS, Server
from picture_files import png
from sound_files import tone
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
    assert policy["trusted-types"] == "dompurify"
    assert policy["require-trusted-types-for"] == "'script'"
    inline = Inline()
    inline.feed(page)
    assert [name for name, _ in inline.found] == ["style", "script", "script"]
    for kind in ["style", "script"]:
        digests = [
            base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
            for name, content in inline.found
            if name == kind
        ]
        assert policy[f"{kind}-src"].split() == [f"'sha256-{digest}'" for digest in digests]
    # The page refers to no other host, and uses nothing that the policy would block. The first
    # script has the libraries, whose comments name their sites.
    own = page.replace(inline.found[1][1], "")
    assert not re.search(r"https?:|\bsrc=|//\w+\.|@import|url\(|\sstyle=|\son\w+=", own)


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


def test_a_request_may_have_its_own_template() -> None:
    server = Server(str(MODELS / "text.gguf"), "--parallel", "1")
    try:
        own = {**GOOD, "model": "text"}
        other = {**own, "chat_template": "{% for m in messages %}<{{ m.content }}>{% endfor %}"}
        for request, begins in [(own, "<|im_start|>"), (other, "<secret"), (own, "<|im_start|>")]:
            status, explained, _ = server.post(EXPLAIN, request)
            assert (status, explained["prompt"].startswith(begins)) == (200, True)
            status, reply, _ = server.post("/v1/chat/completions", request)
            assert (status, reply["usage"]["prompt_tokens"]) == (200, explained["prompt_tokens"])
        for template, problem in [
            ("{{ raise_exception('never') }}", "never"),
            ("{% for", "unexpected end"),
        ]:
            for route in [EXPLAIN, "/v1/chat/completions"]:
                request = {**own, "chat_template": template}
                status, reply, _ = server.post(route, request)
                assert (status, reply["error"]["code"]) == (400, "template_error"), reply
                assert problem in reply["error"]["message"]
        for value in WRONG:
            if value is not None and not isinstance(value, str):
                status, reply, _ = server.post(EXPLAIN, {**own, "chat_template": value})
                assert (status, reply["error"]["param"]) == (400, "chat_template")
    finally:
        assert server.stop() == 0


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
    for options, permitted in [(["--allow-origin", origin], True), ([], False)]:
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


def message(page: Page) -> Any:
    return page.get_by_role("textbox", name="Message", exact=True)


def choose_model(page: Page, name: str) -> None:
    page.get_by_role("combobox", name="Model", exact=True).select_option(name)


def wait_for_end(page: Page) -> None:
    """Waits for the end of the reply. Until then the page sends nothing else."""
    expect(page.locator("#stop")).to_be_disabled()


def send(page: Page, model: str, text: str = "secret-prompt") -> None:
    wait_for_end(page)
    choose_model(page, model)
    message(page).fill(text)
    message(page).press("Enter")


def open_panel(page: Page, name: str) -> None:
    panels = page.get_by_role("button", name="Panels", exact=True)
    if panels.is_visible():
        panels.click()
    page.get_by_role("tab", name=name).click()


def stream(page: Page, *texts: str) -> None:
    """Answers requests of the page with these deltas, instead of the server."""
    choices = [{"index": 0, "delta": {"content": text}} for text in texts]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    chunks = [json.dumps({"choices": [choice]}) for choice in choices]
    body = "".join(f"data: {chunk}\n\n" for chunk in [*chunks, "[DONE]"])
    page.route("**/v1/chat/completions", lambda route: route.fulfill(body=body))


REPLY = ".turn.assistant .text"


def test_chat_in_a_browser(page: Page) -> None:
    send(page, "text")
    expect(page.locator(REPLY)).to_have_text(EXPECTED["text"])
    expect(page.locator(".facts")).to_have_text(re.compile(r"\d+ tokens.*; prompt \d+ tokens, "))
    open_panel(page, "Prompt")
    expect(page.locator("#prompt .user-text").first).to_have_text("secret-prompt")
    expect(page.locator("#tokens")).to_contain_text("left in the context")
    page.get_by_role("button", name="New chat").click()
    expect(page.locator(".turn")).to_have_count(0)
    # A reply that was cut says so.
    open_panel(page, "Request")
    page.get_by_label("max_tokens").fill("1")
    send(page, "text")
    expect(page.locator(".notes")).to_have_text(re.compile("^Cut at the limit of tokens"))
    expect(page.locator(".facts")).to_have_text(re.compile(r"^1 token;"))


def test_a_failed_message_returns_to_its_field(page: Page) -> None:
    for text, tools, problem in [
        ("first", "[{", "not valid JSON"),
        ("too long " * 9000, "", "context"),
        ("second", '[{"type": "function"}]', "tools[0]"),
    ]:
        page.get_by_label("Tools, as JSON").fill(tools)
        send(page, "text", text)
        expect(page.locator("#status.error")).to_contain_text(problem)
        expect(message(page)).to_have_value(text.strip())
        expect(page.locator(".turn")).to_have_count(0)
    page.get_by_label("Tools, as JSON").fill("")
    send(page, "text")
    expect(page.locator(REPLY)).to_have_text(EXPECTED["text"])
    # Without an answer of the server there is a sentence, and another attempt.
    page.route("**/v1/chat/completions", lambda route: route.abort())
    send(page, "text", "again")
    expect(page.locator("#status.error")).to_contain_text("The server does not answer.")
    expect(page.locator(".turn")).to_have_count(2)
    page.unroute("**/v1/chat/completions")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(REPLY)).to_have_count(2)
    expect(page.locator("#status")).to_be_empty()


def test_a_chat_that_is_too_long_offers_what_to_leave_out(browser: Any) -> None:
    server = Server(str(MODELS / "text.gguf"), "--n-ctx", "256", "--parallel", "1")
    pages = opened(browser, server)
    try:
        page = next(pages)
        texts = page.locator(".turn.user .text")
        for number, word in enumerate(["first", "second", "third"], 1):
            send(page, "text", word)
            expect(page.locator(REPLY)).to_have_count(number)
        long = "fourth " * 20
        send(page, "text", long)
        expect(page.locator("#status.error")).to_contain_text("context")
        expect(message(page)).to_have_value(long.strip())
        page.get_by_role("button", name="Leave out “first” and try again").click()
        expect(texts.first).to_have_text("second")
        everything = page.get_by_role("button", name="Leave out all earlier messages")
        expect(everything.or_(page.locator(REPLY).nth(2))).to_be_visible()
        if everything.is_visible():
            everything.click()
        expect(texts.last).to_have_text(long)
        expect(page.locator(".turn").last).to_have_class(re.compile("assistant"))
        next(pages, None)
    finally:
        server.stop(signal.SIGKILL)


def test_turns_can_be_retried_edited_and_deleted(page: Page) -> None:
    questions, replies = page.locator(".turn.user .text"), page.locator(REPLY)
    for number, text in enumerate(["one", "two", "three"], 1):
        send(page, "text", text)
        expect(replies).to_have_count(number)
    # Another reply in place of the last. The sampling may have changed meanwhile.
    page.get_by_label("max_tokens").fill("1")
    page.locator(".turn").last.get_by_role("button", name="Retry").click()
    expect(page.locator(".notes")).to_contain_text("Cut at the limit")
    expect(replies).to_have_count(3)
    page.get_by_label("max_tokens").fill("")
    # A question with its reply, and back.
    page.locator(".turn").nth(2).get_by_role("button", name="Delete").click()
    expect(questions).to_have_text(["one", "three"])
    page.get_by_role("button", name="Undo").click()
    expect(questions).to_have_text(["one", "two", "three"])
    # What follows an edited question goes.
    page.locator(".turn").nth(2).get_by_role("button", name="Edit").click()
    page.get_by_label("Edited message").fill("four")
    page.get_by_role("button", name="Send again").click()
    expect(questions).to_have_text(["one", "four"])
    expect(replies).to_have_count(2)
    page.locator(".turn").nth(1).get_by_role("button", name="Edit").click()
    page.get_by_label("Edited reply").fill("Better **text**.")
    page.get_by_role("button", name="Save").click()
    expect(replies.first.locator("strong")).to_have_text("text")
    open_panel(page, "Prompt")
    expect(page.locator("#prompt .assistant-text").first).to_have_text("Better **text**.")
    # An edited question that fails leaves the chat as it was.
    page.route("**/v1/chat/completions", lambda route: route.abort())
    page.locator(".turn").first.get_by_role("button", name="Edit").click()
    page.get_by_label("Edited message").fill("five")
    page.get_by_role("button", name="Send again").click()
    expect(page.locator("#status.error")).to_contain_text("does not answer")
    expect(questions).to_have_text(["one", "four"])
    expect(page.get_by_label("Edited message")).to_have_count(0)
    expect(message(page)).to_have_value("five")


MARKDOWN = """# Title

A [link](https://example.org/a), `code`, **strong** and <b>tags</b><br>

- [x] done
- open

| a | b |
|---|---|
| 1 | 2 |

```python
def twice(x):  # a comment
    return "text" * 2
```

[bad](javascript:hacked=1) ![picture](https://example.org/p.png)
<img src=x onerror="hacked=1"><script>hacked=1</script>
"""


def test_markdown_in_a_browser(browser: Any, server: Server) -> None:
    for page in opened(browser, server, permissions=["clipboard-read", "clipboard-write"]):
        # Cut anywhere, the reply ends the same.
        for size in [len(MARKDOWN), 7, 1]:
            parts = [MARKDOWN[start : start + size] for start in range(0, len(MARKDOWN), size)]
            stream(page, *parts)
            send(page, "text")
            reply = page.locator(REPLY).last
            expect(reply.locator("h3")).to_have_text("Title")
            expect(reply.locator("p").first).to_have_text("A link, code, strong and <b>tags</b>")
            link = reply.get_by_role("link", name="link")
            expect(link).to_have_attribute("href", "https://example.org/a")
            expect(link).to_have_attribute("rel", "noopener noreferrer")
            expect(reply.locator("li").first).to_have_text("☑ done")
            expect(reply.locator("td")).to_have_text(["1", "2"])
            expect(reply.locator(".code-comment")).to_have_text("# a comment")
            expect(reply.locator(".code-word")).to_have_text(["def", "return"])
            # A link without script; an image as a link; HTML as text.
            expect(reply.locator("a")).to_have_text(["link", "bad", "picture"])
            expect(reply.locator("a", has_text="bad")).not_to_have_attribute("href", re.compile(""))
            expect(reply.locator("img, script")).to_have_count(0)
            expect(reply).to_contain_text('<img src=x onerror="hacked=1"><script>')
            page.unroute("**/v1/chat/completions")
        assert page.evaluate("typeof hacked") == "undefined"
        page.get_by_role("button", name="Copy code").last.click()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == 'def twice(x):  # a comment\n    return "text" * 2'
        page.locator(".turn").last.get_by_role("button", name="Copy", exact=True).click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == MARKDOWN


def test_reasoning_in_a_browser(page: Page) -> None:
    send(page, "reasoning")
    expect(page.locator(".reasoning summary")).to_have_text("Reasoning")
    expect(page.locator(".turn.assistant > .text")).not_to_be_empty()
    # It folds when the answer begins.
    expect(page.locator(".reasoning .text")).to_be_hidden()
    page.locator(".reasoning summary").click()
    reasoning = page.locator(".reasoning .text").inner_text()
    assert reasoning and reasoning not in page.locator(".turn.assistant > .text").inner_text()


def test_files_in_a_browser(page: Page) -> None:
    files = page.get_by_role("list", name="Attached files")
    page.locator("#file").set_input_files(
        [
            {"name": "a.txt", "mimeType": "text/plain", "buffer": b"with ``` ticks\n"},
            {"name": "b.md", "mimeType": "text/markdown", "buffer": b"other"},
        ]
    )
    expect(files.get_by_role("listitem")).to_have_count(2)
    page.get_by_role("button", name="Remove b.md").click()
    page.locator("#file").set_input_files(
        {"name": "c.png", "mimeType": "image/png", "buffer": b"\x89PNG\xff\0"}
    )
    expect(page.locator("#status.error")).to_contain_text("c.png is not a text file")
    # Dropped and pasted.
    for event, target in [("drop", "body"), ("paste", "#draft")]:
        page.evaluate(
            """([event, target]) => {
                const transfer = new DataTransfer();
                transfer.items.add(new File(["by " + event], event + ".txt"));
                const options = {dataTransfer: transfer, clipboardData: transfer, bubbles: true};
                const Type = {drop: DragEvent, paste: ClipboardEvent}[event];
                document.querySelector(target).dispatchEvent(new Type(event, options));
            }""",
            [event, target],
        )
        expect(files).to_contain_text(f"{event}.txt")
    send(page, "text", "Look:")
    expect(page.locator(REPLY)).to_have_text(EXPECTED["text"])
    expect(files).to_be_hidden()
    expect(page.locator(".turn.user summary")).to_have_text(["a.txt", "drop.txt", "paste.txt"])
    open_panel(page, "Prompt")
    sent = "Look:\n\na.txt:\n````\nwith ``` ticks\n````\n\ndrop.txt:\n```\nby drop\n```\n\n"
    expect(page.locator("#prompt .user-text")).to_contain_text(sent.strip())


def test_pictures_in_a_browser(browser: Any) -> None:
    """Attached, dropped and pasted pictures, for a model that takes them."""
    model = MODELS / "pictures" / "mlp" / "model.gguf"
    server = Server(f"seeing={model}", "--projector", "auto")
    try:
        for page in opened(browser, server):
            open_panel(page, "Capabilities")
            expect(page.locator("#panel-model")).to_contain_text("text, image")
            red = {"name": "a.png", "mimeType": "image/png", "buffer": png(255, 20, 20)}
            page.locator("#file").set_input_files(red)
            data = list(png(20, 20, 255))
            for event, target in [("drop", "body"), ("paste", "#draft")]:
                page.evaluate(
                    """([event, target, data]) => {
                        const transfer = new DataTransfer();
                        const bytes = new Uint8Array(data);
                        transfer.items.add(new File([bytes], event + ".png", {type: "image/png"}));
                        const options = {dataTransfer: transfer, clipboardData: transfer, bubbles: true};
                        const Type = {drop: DragEvent, paste: ClipboardEvent}[event];
                        document.querySelector(target).dispatchEvent(new Type(event, options));
                    }""",
                    [event, target, data],
                )
            files = page.get_by_role("list", name="Attached files")
            expect(files.get_by_role("listitem")).to_have_count(3)
            page.get_by_role("button", name="Remove paste.png").click()
            open_panel(page, "Request")
            page.locator("#max_tokens").fill("8")
            with page.expect_request("**/v1/chat/completions") as sent:
                send(page, "seeing", "what is it")
            content = sent.value.post_data_json["messages"][0]["content"]
            urls = [
                "data:image/png;base64," + base64.b64encode(bytes(picture)).decode()
                for picture in [red["buffer"], data]
            ]
            assert content == [
                *({"type": "image_url", "image_url": {"url": url}} for url in urls),
                {"type": "text", "text": "what is it"},
            ]
            expect(page.locator(REPLY)).to_have_text(re.compile(r"^[a-z]{8}\s*$"))
            shown = page.locator(".turn.user img")
            expect(shown).to_have_count(2)
            assert shown.first.evaluate("image => image.naturalWidth") == 24
            open_panel(page, "Prompt")
            expect(page.locator("#prompt")).to_contain_text("<__media__>")
    finally:
        server.stop()


def test_sounds_in_a_browser(browser: Any) -> None:
    """Attached, dropped and pasted sounds, for a model that hears."""
    model = MODELS / "sounds" / "qwen2a" / "model.gguf"
    server = Server(f"hearing={model}", "--projector", "auto")
    try:
        for page in opened(browser, server):
            open_panel(page, "Capabilities")
            expect(page.locator("#panel-model")).to_contain_text("text, audio")
            low, high = tone(200, 1), tone(2000, 1)
            sound = {"name": "low.wav", "mimeType": "audio/wav", "buffer": low}
            page.locator("#file").set_input_files(sound)
            for event, target in [("drop", "body"), ("paste", "#draft")]:
                page.evaluate(
                    """([event, target, data]) => {
                        const transfer = new DataTransfer();
                        const bytes = new Uint8Array(data);
                        transfer.items.add(new File([bytes], event + ".wav", {type: "audio/wav"}));
                        const options = {dataTransfer: transfer, clipboardData: transfer, bubbles: true};
                        const Type = {drop: DragEvent, paste: ClipboardEvent}[event];
                        document.querySelector(target).dispatchEvent(new Type(event, options));
                    }""",
                    [event, target, list(high)],
                )
            files = page.get_by_role("list", name="Attached files")
            expect(files.get_by_role("listitem")).to_have_text(["low.wav×", "drop.wav×", "paste.wav×"])
            page.get_by_role("button", name="Remove paste.wav").click()
            picture = {"name": "a.png", "mimeType": "image/png", "buffer": png(255, 20, 20)}
            page.locator("#file").set_input_files(picture)
            expect(page.locator("#status.error")).to_contain_text("The model takes no pictures")
            open_panel(page, "Request")
            page.locator("#max_tokens").fill("8")
            with page.expect_request("**/v1/chat/completions") as sent:
                send(page, "hearing", "what is it")
            content = sent.value.post_data_json["messages"][0]["content"]
            sounds = [base64.b64encode(file).decode() for file in [low, high]]
            assert content == [
                *(
                    {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
                    for data in sounds
                ),
                {"type": "text", "text": "what is it"},
            ]
            expect(page.locator(REPLY)).to_have_text(re.compile(r"^[a-z]{8}\s*$"))
            names = page.locator(".turn.user figcaption")
            expect(names).to_have_text(["low.wav", "drop.wav"])
            # The policy lets the browser read it.
            page.wait_for_function("document.querySelector('.turn.user audio').duration === 1")
            open_panel(page, "Prompt")
            expect(page.locator("#prompt")).to_contain_text("<__media__>")
            for scheme in ["light", "dark"]:
                page.emulate_media(color_scheme=scheme)
                for width in [1280, 390]:
                    page.set_viewport_size({"width": width, "height": 800})
                    chat = page.get_by_role("button", name="Chat", exact=True)
                    if chat.is_visible():
                        chat.click()
                    page.locator("#file").set_input_files(sound)
                    check_state(page, scheme, width, "sounds")
                    page.get_by_role("button", name="Remove low.wav").click()
    finally:
        server.stop()


def test_kept_chats_in_a_browser(page: Page) -> None:
    open_panel(page, "Request")
    page.get_by_label("System prompt").fill("Be brief.")
    send(page, "text", "My first question")
    expect(page.locator(REPLY)).to_have_text(EXPECTED["text"])
    # A reload opens the chat of the tab again.
    page.reload()
    expect(page.locator(REPLY)).to_have_text(EXPECTED["text"])
    expect(page.get_by_label("System prompt")).to_have_value("Be brief.")
    page.get_by_role("button", name="New chat").click()
    page.get_by_label("System prompt").fill("")
    send(page, "reasoning", "Another")
    expect(page.locator(".turn.assistant > .text")).not_to_be_empty()
    open_panel(page, "Chats")
    chats = page.get_by_role("list", name="Kept chats")
    expect(chats.locator(".chat-name")).to_have_text(["Another", "My first question"])
    page.get_by_role("button", name="Rename My first question").click()
    page.get_by_label("Name of the chat").fill("Renamed")
    page.get_by_label("Name of the chat").press("Enter")
    page.get_by_role("button", name="Renamed", exact=True).click()
    expect(page.locator(REPLY)).to_have_text(EXPECTED["text"])
    expect(page.get_by_role("combobox", name="Model", exact=True)).to_have_value("text")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export as JSON").click()
    assert download.value.suggested_filename == "Renamed.json"
    exported = json.loads(pathlib.Path(download.value.path()).read_text("utf-8"))
    assert exported["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "My first question"},
        {"role": "assistant", "content": EXPECTED["text"]},
    ]
    with page.expect_download() as download:
        page.get_by_role("button", name="Export as Markdown").click()
    text = pathlib.Path(download.value.path()).read_text("utf-8")
    assert text.startswith("# Renamed\n\n## System\n\nBe brief.\n\n## You\n\nMy first")
    page.get_by_role("button", name="Delete Another").click()
    expect(chats.get_by_role("listitem")).to_have_count(1)
    page.get_by_role("button", name="Undo").click()
    expect(chats.get_by_role("listitem")).to_have_count(2)
    page.get_by_role("button", name="Delete all chats").click()
    expect(page.locator(".turn")).to_have_count(0)
    assert page.evaluate("localStorage.length") == 0
    # Nothing is kept if that is not wanted.
    page.get_by_label("Keep chats in this browser").uncheck()
    send(page, "text")
    expect(page.locator(REPLY)).to_have_text(EXPECTED["text"])
    assert "secret-prompt" not in page.evaluate("JSON.stringify(localStorage)")


def test_tool_calls_in_a_browser(page: Page) -> None:
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
    choose_model(page, "no_tools")
    page.get_by_role("button", name="Insert an example tool").click()
    message(page).fill("secret-prompt")
    page.get_by_role("tab", name="Request").press("ArrowRight")
    expect(page.locator("#applied")).to_contain_text("tools")
    expect(page.locator("#prompt .tools").first).to_be_visible()
    open_panel(page, "Request")
    page.get_by_text("Polyfills that may run").click()
    page.get_by_label("tools", exact=True).uncheck()
    open_panel(page, "Prompt")
    expect(page.locator("#prompt .tools")).to_have_count(0)
    open_panel(page, "Request")
    page.get_by_label("tools", exact=True).check()
    send(page, "no_tools")
    expect(page.locator(".notes")).to_have_text("Polyfills that ran: tools")
    page.get_by_role("tab", name="Capabilities").click()
    row = page.get_by_role("row").filter(has_text="supports_tools").first
    expect(row.get_by_role("cell").first).to_have_text("no")


def test_stop_in_a_browser(browser: Any) -> None:
    server = Server(str(MODELS / "long.gguf"), *SHIFT)
    pages = opened(browser, server)
    try:
        page = next(pages)
        # The page has no field for what keeps the model generating.
        page.route(
            "**/v1/chat/completions",
            lambda route: route.continue_(
                post_data=json.dumps({**json.loads(route.request.post_data), **ENDLESS})
            ),
        )
        send(page, "long")
        expect(page.locator(REPLY)).to_contain_text("aaaa")
        page.get_by_role("button", name="Stop").click()
        expect(page.locator(".notes")).to_have_text("You stopped the reply here.")
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
        expect(page.locator(REPLY)).to_have_text(EXPECTED["text"])
        kept = page.evaluate("JSON.stringify([localStorage, sessionStorage])")
        assert "secret-prompt" in kept and "secret-key" not in kept
        # A message with a wrong key returns to its field.
        page.get_by_label("API key").fill("wrong")
        send(page, "text", "again")
        expect(page.locator("#status.error")).to_contain_text("key")
        expect(message(page)).to_have_value("again")
        next(pages, None)
    finally:
        server.stop(signal.SIGKILL)


def test_the_template_editor_in_a_browser(page: Page) -> None:
    choose_model(page, "text")
    expect(page.get_by_label("API key")).to_be_hidden()
    page.get_by_role("tab", name="Template").click()
    editor = page.get_by_label("Chat template (Jinja)")
    expect(editor).to_have_value(re.compile("messages"))
    own = editor.input_value()
    expect(page.locator("#draft-prompt .user-text")).to_have_text("Hello")
    # The prompt is updated while typing, and includes the message being typed.
    message(page).fill("secret-prompt")
    editor.fill("{% for m in messages %}\n<{{ m.role }}>{{ m.content }}\n{% endfor %}")
    expect(page.locator("#draft-prompt")).to_have_text("<user>secret-prompt\n")
    expect(page.locator("#findings")).to_contain_text("[drops_tools]")
    editor.fill("{% for m in messages %}\n{{ m.role }\n{% endfor %}")
    expect(page.locator("#verdict")).to_have_text("1 error, 0 warnings, 0 remarks")
    expect(page.locator("#numbers b")).to_have_text("● 2")
    # With the keyboard, from the editor to its first finding and back to the line.
    editor.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(editor).to_be_focused()
    assert editor.evaluate("e => e.value.slice(e.selectionStart, e.selectionEnd)") == "{{ m.role }"
    page.get_by_role("button", name="Take the model's").click()
    expect(editor).to_have_value(own)
    expect(page.locator("#verdict")).to_contain_text("0 errors")


def test_a_draft_of_the_template_in_the_chat(page: Page) -> None:
    choose_model(page, "text")
    open_panel(page, "Template")
    editor = page.get_by_label("Chat template (Jinja)")
    expect(editor).to_have_value(re.compile("messages"))
    editor.fill("{% for m in messages %}<<{{ m.content }}>>{% endfor %}")
    page.get_by_label("Use this draft in the chat").check()
    expect(page.locator("#trying")).to_be_visible()
    message(page).fill("secret-prompt")
    message(page).press("Enter")
    expect(page.locator(REPLY)).to_have_text(EXPECTED["text"])
    open_panel(page, "Prompt")
    expect(page.locator("#prompt")).to_contain_text("<<secret-prompt>><<Grüße")
    # A draft that refuses the chat is an error of the message.
    open_panel(page, "Template")
    editor.fill("{{ raise_exception('never') }}")
    message(page).fill("again")
    message(page).press("Enter")
    expect(page.locator("#status.error")).to_contain_text("never")
    expect(message(page)).to_have_value("again")
    page.get_by_role("button", name="Use the model's").click()
    message(page).press("Enter")
    expect(page.locator(REPLY)).to_have_count(2)


def test_probabilities_in_a_browser(page: Page) -> None:
    page.get_by_label("Probabilities").check()
    send(page, "text")
    reply = page.locator(REPLY)
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


def test_plots_in_a_browser(browser: Any) -> None:
    """They begin with the server, not with the page."""
    server = Server(str(MODELS / "long.gguf"))
    pages = opened(browser, server)
    try:
        assert server.post("/v1/chat/completions", {**GOOD, "model": "long"})[0] == 200
        for _ in range(600):
            samples = json.loads(server.get("/load"))["data"]
            if samples[-1]["completion_tokens"]:
                break
            time.sleep(0.05)
        assert samples[0]["completion_tokens"] == 0 and samples[-1]["prompt_tokens"] > 0
        page = next(pages)
        page.get_by_role("tab", name="Load").click()
        plots = page.get_by_role("tabpanel").get_by_role("img")
        expect(plots).to_have_count(4)
        expect(plots.nth(1)).to_have_attribute("aria-label", re.compile(r"at most [1-9]\d*$"))
        expect(plots.nth(1).locator("path").first).to_have_attribute("d", re.compile("L89"))
        next(pages, None)
    finally:
        server.stop(signal.SIGKILL)


def test_a_phone(browser: Any, server: Server) -> None:
    """The message field is one line, and the panels are behind a button."""
    size = {"width": 390, "height": 844}
    for page in opened(browser, server, viewport=size, has_touch=True, is_mobile=True):
        tops = [
            page.get_by_role("button", name=name).bounding_box()["y"]
            for name in ["Attach files", "Send"]
        ]
        field = message(page).bounding_box()
        assert tops[0] == tops[1] == field["y"] and field["height"] < 48
        expect(page.get_by_role("tab", name="Request")).to_be_hidden()
        # The key of a phone starts a line.
        choose_model(page, "text")
        message(page).fill("secret-prompt")
        message(page).press("Enter")
        expect(message(page)).to_have_value("secret-prompt\n")
        page.get_by_role("button", name="Send").click()
        expect(page.locator(REPLY)).to_have_text(EXPECTED["text"])
        open_panel(page, "Capabilities")
        rows = page.get_by_role("table").first.get_by_role("rowheader")
        expect(rows.first).to_have_text("architecture")
        expect(message(page)).to_be_hidden()
        page.get_by_role("button", name="Chat", exact=True).click()
        expect(message(page)).to_be_visible()


def check_state(page: Page, scheme: str, width: int, name: str) -> None:
    """Takes a screenshot, if there is a folder for them."""
    assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    if SCREENSHOTS:
        page.screenshot(path=f"{SCREENSHOTS}/{scheme}-{width}-{name}.png")
    if AXE:
        page.evaluate(AXE)
        violations = page.evaluate("async () => (await axe.run()).violations")
        found = [(each["id"], [node["html"] for node in each["nodes"]]) for each in violations]
        assert not found, (name, found)


@pytest.mark.parametrize("width", [320, 820, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_sizes_in_a_browser(browser: Any, server: Server, width: int, scheme: str) -> None:
    """Nothing is cut off, and axe-core finds no violation in any state."""
    size = {"width": width, "height": 800}
    for page in opened(browser, server, viewport=size, color_scheme=scheme):
        check = functools.partial(check_state, page, scheme, width)
        check("empty")
        stream(page, MARKDOWN)
        send(page, "text")
        expect(page.locator(".code-block")).to_be_visible()
        check("markdown")
        page.unroute("**/v1/chat/completions")
        page.locator("#file").set_input_files(
            {"name": "a.txt", "mimeType": "text/plain", "buffer": b"a file"}
        )
        send(page, "text", "too long " * 9000)
        expect(page.locator("#status.error")).to_be_visible()
        message(page).fill("short")
        check("failed")
        message(page).press("Enter")
        expect(page.locator(".turn")).to_have_count(4)
        page.get_by_role("button", name="Edit").last.click()
        check("edit")
        page.get_by_role("button", name="Cancel").click()
        send(page, "reasoning")
        expect(page.locator(".reasoning")).to_be_visible()
        open_panel(page, "Request")
        page.get_by_label("Probabilities").check()
        page.get_by_text("Polyfills that may run").click()
        page.get_by_role("button", name="Insert an example tool").click()
        if width < 900:
            page.get_by_role("button", name="Chat", exact=True).click()
        send(page, "tool_call")
        expect(page.get_by_label("Result of get_weather")).to_be_visible()
        check("call")
        if width < 900:
            page.get_by_role("button", name="Panels", exact=True).click()
        for name in ["Request", "Prompt", "Template", "Capabilities", "Load", "Chats"]:
            page.get_by_role("tab", name=name).click()
            loaded = {"Template": "#findings li", "Load": "#plots figure"}.get(name)
            if loaded:
                expect(page.locator(loaded).first).to_be_visible()
            check(name)
