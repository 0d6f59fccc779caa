"""Fetching models of a hub, and the cache shared with huggingface_hub."""

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import llb
from conftest import skip
from hub_server import COMMIT, Hub


# A busy machine may need more than the 10 seconds that the package waits for an answer.
OFFICIAL = {
    "HF_HUB_DISABLE_XET": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_ETAG_TIMEOUT": "300",
    "HF_HUB_DOWNLOAD_TIMEOUT": "300",
}


@pytest.fixture
def hub(models, tmp_path, monkeypatch):
    """A hub with three models, and an empty cache."""
    files = {
        "m-Q4_K_M.gguf": models("text").read_bytes() + bytes(range(256)) * 4096,
        "sub/m-Q8_0.gguf": models("text").read_bytes(),
        "plain-F16.gguf": models("no_tools").read_bytes(),
        "README.md": b"A model.",
    }
    hub = Hub(files)
    for name in list(os.environ):
        if name.startswith(("HF_", "HUGGING")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    yield hub
    hub.close()


def test_a_model_is_fetched_with_progress(hub, tmp_path):
    seen, events = [], []
    fetched = llb.fetch(
        "o/n", on_progress=lambda here, total: seen.append((here, total)), on_event=events.append
    )
    content = hub.files["m-Q4_K_M.gguf"]
    with open(fetched["path"], "rb") as file:
        assert file.read() == content
    assert fetched["path"] == str(
        tmp_path / "hub" / "models--o--n" / "snapshots" / COMMIT / "m-Q4_K_M.gguf"
    )
    assert (seen[0], seen[-1]) == ((0, len(content)), (len(content), len(content)))
    assert (events[0], events[-2:]) == ("fetch_start", ["fetch_verify", "fetch_success"])
    assert fetched["model_info"]["supports_tools"] is True
    assert llb.fetch("o/n", cache_dir=tmp_path / "hub", offline=True)["from_cache"] is True
    plan = llb.fetch("o/n:Q8_0", dry_run=True)
    assert (plan["path"], plan["files"][0]["name"]) == (None, "sub/m-Q8_0.gguf")


def test_failures_have_codes(hub):
    for request, code in [
        ({"id": "o/n:Q2_K"}, "HUB_NOT_FOUND"),
        ({"id": "o/n:Q8_0", "offline": True}, "OFFLINE"),
        ({"id": "no/../model"}, "INVALID_REQUEST"),
    ]:
        with pytest.raises(llb.LlbError) as caught:
            llb.fetch(**request)
        assert caught.value.code == code
    with pytest.raises(llb.ToolsUnsupported):
        llb.fetch("o/n:F16")
    assert hub.downloads() == []


def test_a_chat_opens_by_id(hub, expected):
    with llb.Chat.from_pretrained("o/n:Q8_0", n_ctx=512, n_threads=1) as chat:
        reply = chat.create([{"role": "user", "content": "Hello"}], temperature=0)
    assert reply["text"] == expected["text"]
    with pytest.raises(llb.ToolsUnsupported):
        llb.Chat.from_pretrained("o/n:F16")
    assert len(hub.downloads()) == 1
    with llb.Chat.from_pretrained("o/n:F16", tool_policy="any", n_ctx=512, n_threads=1) as chat:
        assert chat.path.endswith("plain-F16.gguf")


def test_a_callback_that_raises_ends_the_fetch(hub):
    def fail(here, total):
        raise KeyError("on purpose")

    with pytest.raises(KeyError, match="on purpose"):
        llb.fetch("o/n", on_progress=fail)
    assert llb.fetch("o/n")["from_cache"] is False


def test_an_interrupt_ends_the_fetch(hub, tmp_path):
    hub.hold.set()
    blobs = tmp_path / "hub" / "models--o--n" / "blobs"

    def partial():
        return [file for file in blobs.glob("*") if file.stat().st_size > 0]

    def interrupt():
        hub.holding.wait(300)
        for _ in range(6000):  # the client may still be reading what the server has sent
            if partial():
                break
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            llb.fetch("o/n")
    finally:
        thread.join()
    # The fetch ended although the server still holds back the second half.
    assert hub.hold.is_set()
    hub.hold.clear()
    assert [file.suffix for file in partial()] == [".incomplete"]
    written = partial()[0].stat().st_size
    assert llb.fetch("o/n")["from_cache"] is False
    ranges = [requested for server, _, requested in hub.seen if server == "Storage"]
    assert ranges[-1] == f"bytes={written}-"


@pytest.fixture
def official(hub, tmp_path):
    """Downloads a file with huggingface_hub and returns its path.

    Runs in a new process, because huggingface_hub reads its environment only once.
    """
    if importlib.util.find_spec("huggingface_hub") is None:
        skip("huggingface_hub is not installed")
    code = (
        "import sys, huggingface_hub as h\n"
        "name, offline = sys.argv[1], sys.argv[2] == 'offline'\n"
        "print(h.hf_hub_download('o/n', name, local_files_only=offline))"
    )

    def download(name, offline=False):
        process = subprocess.run(
            [sys.executable, "-c", code, name, "offline" if offline else "online"],
            env={**os.environ, **OFFICIAL},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert process.returncode == 0, process.stderr
        return process.stdout.strip()

    return download


def test_huggingface_hub_finds_a_fetched_file(hub, official):
    for id, name in [("o/n", "m-Q4_K_M.gguf"), ("o/n:Q8_0", "sub/m-Q8_0.gguf")]:
        fetched = llb.fetch(id)
        hub.seen.clear()
        assert official(name, offline=True) == fetched["path"]
        assert official(name) == fetched["path"]
        assert hub.downloads() == []


def test_a_file_downloaded_by_huggingface_hub_is_found(hub, official, tmp_path):
    paths = {name: official(name) for name in ["m-Q4_K_M.gguf", "sub/m-Q8_0.gguf"]}
    hub.seen.clear()
    for offline in (True, False):
        for id, name in [("o/n:Q4_K_M", "m-Q4_K_M.gguf"), ("o/n:Q8_0", "sub/m-Q8_0.gguf")]:
            fetched = llb.fetch(id, offline=offline)
            assert (fetched["path"], fetched["from_cache"]) == (paths[name], True)
            assert fetched["sha256"] == hub.hashes[name]
    assert hub.downloads() == []
    # huggingface_hub still considers its cache valid.
    from huggingface_hub import scan_cache_dir

    scanned = scan_cache_dir(tmp_path / "hub")
    assert not scanned.warnings
    (repository,) = scanned.repos
    assert (repository.repo_id, repository.nb_files) == ("o/n", 2)


def test_concurrent_downloads_share_one_lock(hub, official):
    paths = []
    threads = [
        threading.Thread(target=lambda: paths.append(official("m-Q4_K_M.gguf"))) for _ in range(2)
    ]
    threads += [
        threading.Thread(target=lambda: paths.append(llb.fetch("o/n")["path"])) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(paths), len(set(paths))) == (4, 1)
    with open(paths[0], "rb") as file:
        assert file.read() == hub.files["m-Q4_K_M.gguf"]
    # All take the same lock, so the file is downloaded once.
    assert len(hub.downloads()) == 1
