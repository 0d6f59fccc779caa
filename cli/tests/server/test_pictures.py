"""Pictures in the requests of every protocol, by the official clients, for models with a projector.

The models and projectors have random weights: a reply changes with everything that the model gets.
"""

from __future__ import annotations

import base64
import http.server
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest
from conftest import MODELS, PROGRAM, Server
from picture_files import png

sys.path.append(str(pathlib.Path(__file__).parents[3] / "bindings/python/tests"))
from hub_server import Hub  # noqa: E402

anthropic = pytest.importorskip("anthropic")
ollama = pytest.importorskip("ollama")
openai = pytest.importorskip("openai")

FOLDER = MODELS / "pictures"
TEXT = "what is it"
TOKENS = 16


RED, BLUE = (base64.b64encode(png(*color)).decode() for color in [(255, 20, 20), (20, 20, 255)])


@pytest.fixture(scope="module")
def seeing() -> Iterator[Server]:
    models = [f"{kind}={FOLDER / kind / 'model.gguf'}" for kind in ["mlp", "gemma3"]]
    running = Server(*models, "--projector", "auto")
    yield running
    assert running.stop() == 0, running.log


def image_url(data: str) -> Dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def block(data: str) -> Dict[str, Any]:
    source = {"type": "base64", "media_type": "image/png", "data": data}
    return {"type": "image", "source": source}


# Each asks about a picture, and returns the text of the reply and the tokens of the prompt.
Ask = Callable[[Server, str, str, bool], Tuple[str, int]]


def by_chat(server: Server, model: str, data: str, stream: bool) -> Tuple[str, int]:
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="x")
    content = [image_url(data), {"type": "text", "text": TEXT}]
    request = {
        "model": model,
        "temperature": 0,
        "max_tokens": TOKENS,
        "messages": [{"role": "user", "content": content}],
    }
    if not stream:
        reply = client.chat.completions.create(**request)
        return reply.choices[0].message.content, reply.usage.prompt_tokens
    options = {"include_usage": True}
    chunks = list(client.chat.completions.create(**request, stream=True, stream_options=options))
    parts = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    return "".join(parts), chunks[-1].usage.prompt_tokens


def by_response(server: Server, model: str, data: str, stream: bool) -> Tuple[str, int]:
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="x")
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}
    content = [image, {"type": "input_text", "text": TEXT}]
    request = {
        "model": model,
        "temperature": 0,
        "max_output_tokens": TOKENS,
        "input": [{"role": "user", "content": content}],
    }
    if stream:
        # The reply is cut off, and the helper of the client waits for one that is not.
        reply = list(client.responses.create(**request, stream=True))[-1].response
    else:
        reply = client.responses.create(**request)
    return reply.output_text, reply.usage.input_tokens


def by_message(server: Server, model: str, data: str, stream: bool) -> Tuple[str, int]:
    client = anthropic.Anthropic(base_url=server.url, api_key="x")
    content = [block(data), {"type": "text", "text": TEXT}]
    request = {
        "model": model,
        "extra_body": {"temperature": 0},
        "max_tokens": TOKENS,
        "messages": [{"role": "user", "content": content}],
    }
    if stream:
        with client.messages.stream(**request) as events:
            reply = events.get_final_message()
    else:
        reply = client.messages.create(**request)
    usage = reply.usage
    return reply.content[0].text, usage.input_tokens + usage.cache_read_input_tokens


def by_ollama(server: Server, model: str, data: str, stream: bool) -> Tuple[str, int]:
    client = ollama.Client(host=server.url)
    options = {"temperature": 0, "num_predict": TOKENS}
    message = {"role": "user", "content": TEXT, "images": [base64.b64decode(data)]}
    reply = client.chat(model, messages=[message], options=options, stream=stream)
    parts = list(reply) if stream else [reply]
    return "".join(part.message.content for part in parts), parts[-1].prompt_eval_count


def by_generate(server: Server, model: str, data: str, stream: bool) -> Tuple[str, int]:
    client = ollama.Client(host=server.url)
    options = {"temperature": 0, "num_predict": TOKENS}
    images = [base64.b64decode(data)]
    reply = client.generate(model, TEXT, images=images, options=options, stream=stream)
    parts = list(reply) if stream else [reply]
    return "".join(part.response for part in parts), parts[-1].prompt_eval_count


ASKS: List[Ask] = [by_chat, by_response, by_message, by_ollama, by_generate]


@pytest.mark.parametrize("model", ["mlp", "gemma3"])
def test_every_protocol_shows_the_same_picture(seeing: Server, model: str) -> None:
    red = by_chat(seeing, model, RED, False)
    blue = by_chat(seeing, model, BLUE, False)
    assert red[0] != blue[0] and red[1] == blue[1]
    for ask in ASKS:
        for stream in [False, True]:
            assert ask(seeing, model, BLUE, stream) == blue, (ask.__name__, stream)
    assert by_chat(seeing, model, RED, False) == red


def test_a_model_without_the_option_gets_a_text(seeing: Server) -> None:
    blind = Server(f"mlp={FOLDER / 'mlp' / 'model.gguf'}")
    client = openai.OpenAI(base_url=blind.url + "/v1", api_key="x")
    content = [image_url(RED), {"type": "text", "text": TEXT}]
    raw = client.chat.completions.with_raw_response.create(
        model="mlp", max_tokens=1, messages=[{"role": "user", "content": content}]
    )
    assert raw.headers["x-llb-diagnostics"] == "part_replaced=messages[0].content[0]"
    described = [{"role": "user", "content": "[image: 24x24 png]\n" + TEXT}]
    reply = client.chat.completions.create(model="mlp", max_tokens=1, messages=described)
    assert raw.parse().usage.prompt_tokens == reply.usage.prompt_tokens
    assert client.models.retrieve("mlp").capabilities["vision"] is False
    assert blind.stop() == 0, blind.log
    seen = openai.OpenAI(base_url=seeing.url + "/v1", api_key="x").models.retrieve("mlp")
    assert seen.capabilities["vision"] is True
    assert "vision" in ollama.Client(host=seeing.url).show("gemma3").capabilities
    assert '"modalities":{"vision":true' in seeing.get("/props")


def test_a_tool_may_return_a_picture(seeing: Server) -> None:
    client = anthropic.Anthropic(base_url=seeing.url, api_key="x")

    def messages(data: str) -> List[Any]:
        call = {"type": "tool_use", "id": "1", "name": "look", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "1", "content": [block(data)]}
        return [
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result, {"type": "text", "text": "well"}]},
        ]

    def of_message(data: str) -> str:
        reply = client.messages.create(
            model="mlp",
            max_tokens=TOKENS,
            messages=messages(data),
            extra_body={"temperature": 0},
        )
        return reply.content[0].text

    assert of_message(RED) != of_message(BLUE)
    clients = openai.OpenAI(base_url=seeing.url + "/v1", api_key="x")

    def of_response(data: str) -> str:
        image = {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}
        given = [
            {"role": "user", "content": "look"},
            {
                "type": "function_call",
                "call_id": "1",
                "name": "look",
                "arguments": "{}",
            },
            {"type": "function_call_output", "call_id": "1", "output": [image]},
            {"role": "user", "content": "well"},
        ]
        reply = clients.responses.create(
            model="mlp", max_output_tokens=TOKENS, temperature=0, input=given
        )
        return reply.output_text

    # The two protocols have the same messages.
    assert [of_response(RED), of_response(BLUE)] == [of_message(RED), of_message(BLUE)]


def test_a_response_is_continued_with_its_picture(seeing: Server) -> None:
    client = openai.OpenAI(base_url=seeing.url + "/v1", api_key="x")

    def continued(data: str) -> str:
        image = {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}
        content = [image, {"type": "input_text", "text": TEXT}]
        options = {"model": "mlp", "max_output_tokens": TOKENS, "temperature": 0}
        first = client.responses.create(input=[{"role": "user", "content": content}], **options)
        # The same reply, so that only the pictures differ.
        item = {"role": "assistant", "content": "so"}
        next_turn = {"role": "user", "content": "and now"}
        kept = client.responses.create(
            previous_response_id=first.id, input="and now", **options
        ).output_text
        said = {"role": "assistant", "content": first.output_text}
        whole = [{"role": "user", "content": content}, said, next_turn]
        assert client.responses.create(input=whole, **options).output_text == kept
        whole[1] = item
        return client.responses.create(input=whole, **options).output_text

    assert continued(RED) != continued(BLUE)


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises((openai.BadRequestError, anthropic.BadRequestError)) as raised:
        call()
    body = raised.value.body
    return (body.get("error") or body)["message"]


def test_errors_name_the_part_of_the_request(seeing: Server) -> None:
    client = openai.OpenAI(base_url=seeing.url + "/v1", api_key="x")
    bad = base64.b64encode(b"hello").decode()
    problem = "not a picture; PNG, JPEG, WebP, GIF and BMP are supported"
    system = {"role": "system", "content": "s"}
    chat: Dict[str, Any] = {"model": "mlp", "max_tokens": 1}
    path = "messages[1].content[0].image_url.url"
    for part, expected in [
        (image_url(bad), f"{path}: {problem}"),
        (
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            f"{path}: files are fetched only with llb serve --media-urls; set it, or send a data URL: "
            "data:image/png;base64,...",
        ),
    ]:
        messages = [system, {"role": "user", "content": [part]}]
        call = lambda: client.chat.completions.create(messages=messages, **chat)  # noqa: B023, E731
        assert refusal(call) == expected
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{bad}"}
    given = [{"role": "user", "content": [{"type": "input_text", "text": "a"}, image]}]
    call = lambda: client.responses.create(model="mlp", instructions="s", input=given)  # noqa: E731
    assert refusal(call) == f"input[0].content[1].image_url: {problem}"
    given[0]["content"] = [{"type": "input_image", "file_id": "f"}]  # type: ignore[dict-item]
    problem_of_file = "is missing; no files are stored here, send a data URL"
    assert refusal(call) == f"input[0].content[0].image_url: {problem_of_file}"
    claude = anthropic.Anthropic(base_url=seeing.url, api_key="x")
    content = [{"type": "text", "text": "a"}, block(bad)]
    asked = [{"role": "user", "content": content}]
    call = lambda: claude.messages.create(model="mlp", max_tokens=1, system="s", messages=asked)  # noqa: E731
    assert refusal(call) == f"messages[0].content[1].source.data: {problem}"
    content[1] = {
        "type": "image",
        "source": {"type": "url", "url": "https://example.org/a.png"},
    }
    assert refusal(call).startswith(
        "messages[0].content[1].source.url: files are fetched only with"
    )
    content[1] = {"type": "image", "source": {"type": "file", "file_id": "f"}}
    assert refusal(call).startswith("messages[0].content[1].source.type: no files are stored here")
    body = {
        "model": "mlp",
        "messages": [{"role": "user", "content": "a", "images": [bad]}],
    }
    status, reply, _ = seeing.post("/api/chat", body)
    assert (status, reply["error"]) == (400, f"messages[0].images[0]: {problem}")


def test_clients_name_pictures_in_the_folders_of_the_server(
    tmp_path: pathlib.Path,
) -> None:
    for name, data in [("red cat.png", RED), ("blue.png", BLUE)]:
        (tmp_path / name).write_bytes(base64.b64decode(data))
    outside = tmp_path.parent / f"{tmp_path.name}-outside.png"
    outside.write_bytes(base64.b64decode(RED))
    model = str(FOLDER / "mlp" / "model.gguf")
    server = Server(model, "--projector", "auto", "--media-folder", str(tmp_path))
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="x")
    claude = anthropic.Anthropic(base_url=server.url, api_key="x")
    text = {"type": "text", "text": TEXT}

    def chat(part: Any) -> str:
        return (
            client.chat.completions.create(
                model="model",
                max_tokens=TOKENS,
                temperature=0,
                messages=[{"role": "user", "content": [part, text]}],
            )
            .choices[0]
            .message.content
        )

    def asked(url: str) -> Any:
        image = {"type": "image", "source": {"type": "url", "url": url}}
        return [{"role": "user", "content": [image, text]}]

    def message(url: str) -> str:
        reply = claude.messages.create(
            model="model",
            max_tokens=TOKENS,
            extra_body={"temperature": 0},
            messages=asked(url),
        )
        return reply.content[0].text

    red = chat(image_url(RED))
    assert chat(image_url(BLUE)) != red
    url = (tmp_path / "red cat.png").as_uri()
    by_url = {"type": "image_url", "image_url": {"url": url}}
    by_path = {"type": "image", "path": str(tmp_path / "red cat.png")}
    assert [chat(by_url), chat(by_path), message(url)] == [red] * 3
    assert chat({"type": "image", "path": str(tmp_path / "blue.png")}) == chat(image_url(BLUE))
    counts = [
        claude.messages.count_tokens(model="model", messages=messages).input_tokens
        for messages in (asked(url), [{"role": "user", "content": [block(RED), text]}])
    ]
    assert counts[0] == counts[1]
    for path in [outside, outside.with_name("none.png"), tmp_path / "none.png"]:
        problem = "is not a file that can be read in a folder of llb serve --media-folder"
        call = lambda: chat({"type": "image", "path": str(path)})  # noqa: B023, E731
        assert refusal(call).startswith(f"messages[0].content[0].path: {problem}")
        call = lambda: message(path.as_uri())  # noqa: B023, E731
        assert refusal(call).startswith(f"messages[0].content[0].source.url: {problem}")
    assert server.stop() == 0, server.log
    command = [PROGRAM, "serve", model, "--port", "0", "--media-folder"]
    refused = [
        subprocess.run([*command, *rest], capture_output=True, text=True, timeout=60)
        for rest in ([str(tmp_path)], [str(tmp_path / "none"), "--projector", "auto"])
    ]
    assert "--projector" in refused[0].stderr and refused[0].returncode == 2
    assert "--media-folder[0]: " in refused[1].stderr and refused[1].returncode == 1


class PictureHandler(http.server.BaseHTTPRequestHandler):
    """Answers every path with the red picture."""

    def do_GET(self) -> None:
        file = base64.b64decode(RED)
        self.send_response(200)
        self.send_header("Content-Length", str(len(file)))
        self.end_headers()
        self.wfile.write(file)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_the_server_fetches_pictures_if_it_may() -> None:
    pictures = http.server.ThreadingHTTPServer(("127.0.0.1", 0), PictureHandler)
    threading.Thread(target=pictures.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{pictures.server_port}/a"
    model = f"mlp={FOLDER / 'mlp' / 'model.gguf'}"

    def ask(server: Server, url: str) -> str:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="x")
        image = {"type": "input_image", "image_url": url}
        content = [image, {"type": "input_text", "text": TEXT}]
        return client.responses.create(
            model="mlp",
            max_output_tokens=TOKENS,
            temperature=0,
            input=[{"role": "user", "content": content}],
        ).output_text

    everywhere = Server(model, "--projector", "auto", "--media-urls", "all")
    assert ask(everywhere, url) == ask(everywhere, f"data:;base64,{RED}")
    assert ask(everywhere, url) != ask(everywhere, f"data:;base64,{BLUE}")
    assert everywhere.stop() == 0, everywhere.log
    public = Server(model, "--projector", "auto", "--media-urls", "public")
    problem = "its address is not one of the public internet"
    expected = f"input[0].content[0].image_url: 127.0.0.1:{pictures.server_port}: {problem}"
    assert refusal(lambda: ask(public, url)) == expected
    assert public.stop() == 0, public.log
    pictures.shutdown()


def test_pictures_are_counted(seeing: Server) -> None:
    client = anthropic.Anthropic(base_url=seeing.url, api_key="x")
    asked = [{"role": "user", "content": [block(RED), {"type": "text", "text": TEXT}]}]
    for model in ["mlp", "gemma3"]:
        count = client.messages.count_tokens(model=model, messages=asked).input_tokens
        assert count == by_message(seeing, model, RED, False)[1]
    bad = [{"role": "user", "content": [block("aGVsbG8=")]}]
    call = lambda: client.messages.count_tokens(model="mlp", messages=bad, system="s")  # noqa: E731
    assert refusal(call).startswith("messages[0].content[0].source.data: not a picture")


def test_a_projector_of_another_model_is_refused_at_the_start() -> None:
    def refused(*arguments: str) -> str:
        command = [PROGRAM, "serve", *arguments, "--port", "0"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        return done.stderr

    model, other = str(FOLDER / "mlp" / "model.gguf"), str(MODELS / "text.gguf")
    projector = str(FOLDER / "mlp" / "mmproj-model.gguf")
    wrong = refused(other, "--projector", projector)
    assert "--projector: " in wrong and re.search(r"of length 64, but those .* have \d+", wrong)
    both = refused(model, other, "--projector", projector)
    assert "--projector FILE is for one model" in both and "--projector auto" in both
    assert "cannot be used with --render" in refused(model, "--render", "--projector", "auto")


def test_info_says_what_a_model_takes() -> None:
    model = str(FOLDER / "gemma3" / "model.gguf")
    projector = str(FOLDER / "gemma3" / "mmproj-model.gguf")

    def info(*arguments: str) -> Any:
        command = [PROGRAM, "info", *arguments, "--json"]
        return json.loads(subprocess.check_output(command, text=True, timeout=60))

    beside = info(model)
    assert (beside["input_modalities"], beside["projector"]) == (["text", "image"], projector)
    assert "projector" not in beside["memory"]
    given = info(model, "--projector", projector)
    taken = given["memory"]["projector"]
    assert (taken["type"], taken["tokens_per_image"]) == ("gemma3", 16)
    assert given["memory"]["weights"] == beside["memory"]["weights"] + taken["weights"]
    text = subprocess.check_output([PROGRAM, "info", model, "--mmproj", "auto"], text=True)
    assert f"text, image, with the projector {projector}" in text
    assert "The projector takes " in text
    other = info(str(MODELS / "text.gguf"), "--projector", projector)
    assert other["input_modalities"] == ["text"]
    assert "belongs to another model" in other["memory"]["error"]["message"]


def test_a_large_picture_is_taken(seeing: Server) -> None:
    # A photo of a phone has some megabytes.
    large = base64.b64encode(base64.b64decode(RED) + bytes(5_000_000)).decode()
    assert by_chat(seeing, "mlp", large, False)[1] == by_chat(seeing, "mlp", RED, False)[1]
    assert json.loads(seeing.get("/props"))["limits"]["body_bytes"] == 32 << 20


def test_large_pictures_at_once_wait_for_memory() -> None:
    # One takes some 400 MB while it is decoded, and four at once more than there is.
    picture, room = png(255, 90, 20, 6800, 6800), 900 << 20
    server = Server(str(FOLDER / "mlp" / "model.gguf"), "--projector", "auto")

    def status(file: bytes) -> int:
        data = base64.b64encode(file).decode()
        messages = [{"role": "user", "content": [image_url(data), {"type": "text", "text": TEXT}]}]
        return server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1})[0]

    try:
        assert status(png(1, 2, 3)) == 200
        process = server.process.pid
        used = pathlib.Path(f"/proc/{process}/status").read_text("utf-8")
        limit = int(re.findall(r"^VmSize:\s+(\d+) kB$", used, re.M)[0]) * 1024 + room
        resource.prlimit(process, resource.RLIMIT_AS, (limit, limit))
        # What is kept of one is nothing for the others.
        others = [picture + bytes([number]) for number in range(8)]
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(status, others)) == [200] * 8
    finally:
        assert server.stop() == 0, server.log


def test_a_model_of_the_hub_and_its_projector(tmp_path: Any) -> None:
    names = ["model.gguf", "mmproj-model.gguf"]
    hub = Hub({name: (FOLDER / "mlp" / name).read_bytes() for name in names})
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path)}
    picture = tmp_path / "red.png"
    picture.write_bytes(base64.b64decode(RED))

    def llb(*arguments: str) -> str:
        command = [PROGRAM, *arguments]
        return subprocess.check_output(
            command, text=True, timeout=60, env=environment, stdin=subprocess.DEVNULL
        )

    try:
        llb("fetch", "o/n", "--any")
        llb("fetch", "o/n", "--any", "--filename", names[1])
        options = ["--temperature", "0", "--max-tokens", str(TOKENS)]
        asked = ["-p", TEXT, "--image", str(picture), *options]
        assert llb("run", "hf:o/n", *asked) == llb("run", str(FOLDER / "mlp" / names[0]), *asked)
    finally:
        hub.close()


def test_the_terminal_takes_pictures(tmp_path: Any) -> None:
    model = str(FOLDER / "mlp" / "model.gguf")
    for name, data in [("red", RED), ("blue", BLUE)]:
        (tmp_path / f"{name}.png").write_bytes(base64.b64decode(data))
    (tmp_path / "text.png").write_bytes(b"hello")

    def run(*images: str) -> subprocess.CompletedProcess[str]:
        pictures = [part for name in images for part in ["--image", str(tmp_path / name)]]
        options = [
            "-p",
            TEXT,
            "--temperature",
            "0",
            "--max-tokens",
            str(TOKENS),
            *pictures,
        ]
        command = [PROGRAM, "run", model, *options]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )

    red, blue = run("red.png"), run("blue.png")
    assert red.returncode == 0, red.stderr
    seen = red.stdout.strip()
    assert len(seen) == TOKENS and seen != blue.stdout.strip()
    both = run("red.png", "blue.png")
    assert both.stdout.strip() not in ["", seen, blue.stdout.strip()]
    bad = run("text.png")
    assert bad.returncode == 1 and "text.png: not a picture" in bad.stderr, bad.stderr
    assert "no such file" in run("none.png").stderr.lower()
