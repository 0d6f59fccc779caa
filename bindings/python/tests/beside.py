"""Runs llb and another llama.cpp (PyPI: xllamacpp) in one process, and prints what both write.

Usage: python beside.py FIRST MODEL

FIRST is the library that is loaded first, "llb" or "xllamacpp". Each chats before the other is
loaded, then again with the other in use, and at the same time as the other.
"""

import json
import sys
import threading
import urllib.request
from pathlib import Path

FIRST, MODEL = sys.argv[1:]
MESSAGES = [{"role": "user", "content": "Hello"}]


def open_llb():
    import llb

    chat = llb.Chat(MODEL, n_ctx=512, n_threads=1)
    return lambda: chat.create(MESSAGES, temperature=0)["text"]


def open_xllamacpp():
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = MODEL
    params.n_ctx = 512
    params.n_parallel = 1
    params.port = 0
    params.cpuparams.n_threads = 1
    server = xllamacpp.Server(params)

    def ask():
        body = json.dumps({"messages": MESSAGES, "temperature": 0, "max_tokens": 200})
        url = f"{server.listening_address}/v1/chat/completions"
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, body.encode(), headers)
        with urllib.request.urlopen(request) as response:
            return json.load(response)["choices"][0]["message"]["content"]

    return ask


openers = {"llb": open_llb, "xllamacpp": open_xllamacpp}
texts = {name: [] for name in openers}
asks = {}
for name in sorted(openers, key=lambda name: name != FIRST):
    asks[name] = openers[name]()
    for each in asks:
        texts[each].append(asks[each]())


def repeat(name):
    for _ in range(5):
        texts[name].append(asks[name]())


threads = [threading.Thread(target=repeat, args=[name]) for name in asks]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
# Where each library is mapped: both have their own llama.cpp.
maps = Path("/proc/self/maps").read_text()
texts["mapped"] = sorted(name for name in ("libllb", "xllamacpp") if name in maps)
print(json.dumps(texts), flush=True)
