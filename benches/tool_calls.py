#!/usr/bin/env python3
"""Counts right and lost tool calls on the Berkeley benchmark, in llb and in llama.cpp's own server.

    benches/tool_calls.py MODEL.gguf... [--cases 20] [--first 0] [--categories simple_python,...]
                          [--tool-choice auto,required] [--wrong FILE] [--endpoint NAME=URL]...

Needs the program llb (`LLB_PROGRAM`, else target/release/llb) and, in the environment that runs the
script, `pip install xllamacpp` (the other server) and `pip install --no-deps bfcl-eval` (the cases;
its other dependencies are not used). The cases and their accepted answers stay in that package.

Each model is served by both; `--endpoint` measures further servers with OpenAI's API instead. Every
case is one request with temperature 0, sent to one server after another in rotating order. The model
answers each case from a prompt that is new to it except for its beginning. Verdicts:

    right      the expected calls with accepted arguments; in categories of irrelevance, no call
    in text    no call, but the content writes one of a given tool
    no call    no call, and none in the content
    count      more or fewer calls than expected
    name       a call of another tool than expected
    arguments  an argument is missing, has another value or the wrong type
    invented   a call where none is right, of no given tool, or with an argument that no tool lists
    error      the server refused the request or failed

Accepted values are compared as the benchmark does: without regard to case, spaces, and the characters
`,./-_*^` in strings, and integers count as numbers. Every verdict but right is written to `--wrong`,
one JSON object a line, to be read by people.
"""

import argparse
import collections
import http.client
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CATEGORIES = (
    "simple_python", "multiple", "parallel", "parallel_multiple",
    "live_simple", "live_multiple", "irrelevance", "live_irrelevance",
)
VERDICTS = ("right", "in text", "no call", "count", "name", "arguments", "invented", "error")
# The benchmark's words for types, and JSON Schema's. `any` has no type.
TYPES = {
    "dict": "object", "float": "number", "tuple": "array", "HashMap": "object", "String": "string",
    "int": "integer", "bool": "boolean", "list": "array", "double": "number", "long": "integer",
}
SERVER = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx = int(sys.argv[2])
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(sys.argv[3])
params.n_parallel = 1
params.use_jinja = True
params.port = 0
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""
MAX_WAIT = 900.0


# The cases.


def lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def cases(category, first, count):
    """The benchmark's cases `first` to `first + count`: messages, tools, expected calls."""
    package = importlib.util.find_spec("bfcl_eval")
    if package is None:
        sys.exit("the package of the cases is missing: pip install --no-deps bfcl-eval")
    data = Path(package.submodule_search_locations[0]) / "data"
    name = f"BFCL_v4_{category}.json"
    if not (data / name).exists():
        sys.exit(f"{category}: no such category; there are {', '.join(CATEGORIES)}")
    answers = {}
    if "irrelevance" not in category:
        answers = {line["id"]: line["ground_truth"] for line in lines(data / "possible_answer" / name)}
    for line in lines(data / name)[first : first + count]:
        expected = [(plain_name(tool), values) for call in answers.get(line["id"], []) for tool, values in call.items()]
        yield {
            "id": line["id"],
            "messages": line["question"][0],
            "tools": [{"type": "function", "function": function(given)} for given in line["function"]],
            "expected": expected,
        }


def plain_name(name):
    """A function's name as OpenAI's API allows it."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)


def function(given):
    return {
        "name": plain_name(given["name"]),
        "description": given.get("description", ""),
        "parameters": schema(given["parameters"]),
    }


def schema(value):
    """The benchmark's description of a parameter as JSON Schema."""
    if not isinstance(value, dict):
        return {}
    result = {key: item for key, item in value.items() if key not in ("optional", "type", "properties", "items")}
    if "type" in value and value["type"] != "any":
        result["type"] = TYPES.get(value["type"], value["type"])
    if "properties" in value:
        result["properties"] = {key: schema(item) for key, item in value["properties"].items()}
    if "items" in value:
        result["items"] = schema(value["items"])
    if not isinstance(result.get("required", []), list):
        del result["required"]
    return result


# The verdict on a reply.


def verdict(case, message):
    """One of VERDICTS, for a message of an assistant."""
    calls = message.get("tool_calls") or []
    tools = {tool["function"]["name"]: tool["function"]["parameters"] for tool in case["tools"]}
    if not calls:
        if written_call(message.get("content") or "", tools):
            return "in text"
        return "no call" if case["expected"] else "right"
    if not case["expected"]:
        return "invented"
    read = []
    for call in calls:
        name = call["function"]["name"]
        try:
            arguments = json.loads(call["function"]["arguments"] or "{}")
        except ValueError:
            return "arguments"
        if not isinstance(arguments, dict):
            return "arguments"
        if name not in tools or not arguments.keys() <= tools[name].get("properties", {}).keys():
            return "invented"
        read.append((name, arguments))
    if len(read) != len(case["expected"]):
        return "count"
    remaining = list(case["expected"])
    for name, arguments in read:
        match = next((one for one in remaining if one[0] == name and accepted(arguments, one[1])), None)
        if match is None:
            return "arguments" if any(one[0] == name for one in remaining) else "name"
        remaining.remove(match)
    return "right"


def written_call(content, tools):
    """Whether a text has a call of a given tool, in JSON, as a tag or in Python's notation."""
    for name in map(re.escape, tools):
        if re.search(rf"""["'](name|function)["']\s*:\s*["'](functions\.)?{name}["']""", content):
            return True
        if re.search(rf"<(function|invoke)[= ][^>]*{name}|^\W*{name}\(.*\)\W*$", content, re.MULTILINE):
            return True
    return False


def accepted(arguments, values):
    """Whether every argument is accepted and none is missing. An empty text marks an optional one."""
    missing = [key for key, options in values.items() if key not in arguments and "" not in options]
    return not missing and all(
        key in values and any(equal(argument, option) for option in values[key]) for key, argument in arguments.items()
    )


def equal(value, option):
    if isinstance(value, bool) or isinstance(option, bool):
        return value is option
    if isinstance(value, str) and isinstance(option, str):
        return plain_text(value) == plain_text(option)
    if isinstance(value, dict) and isinstance(option, dict):
        # Each member of an accepted object is a list of accepted values.
        return accepted(value, {key: item if isinstance(item, list) else [item] for key, item in option.items()})
    if isinstance(value, list) and isinstance(option, list):
        return len(value) == len(option) and all(map(equal, value, option))
    return value == option


def plain_text(text):
    return re.sub(r"[ ,./\-_*^]", "", text).lower().replace("'", '"')


# The servers.


class Endpoint:
    """A server with OpenAI's API."""

    def __init__(self, name, url):
        self.name, self.process = name, None
        self.url = urllib.parse.urlsplit(url)

    def ask(self, case, tool_choice, max_tokens):
        """The message, or an error as a text, and the seconds that it took."""
        body = {
            "messages": case["messages"], "tools": case["tools"], "tool_choice": tool_choice,
            "temperature": 0, "max_tokens": max_tokens,
        }
        connection = http.client.HTTPConnection(self.url.netloc, timeout=MAX_WAIT)
        started = time.monotonic()
        path = f"{self.url.path.rstrip('/')}/v1/chat/completions"
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
        except OSError as error:
            return None, str(error), time.monotonic() - started
        finally:
            connection.close()
        seconds = time.monotonic() - started
        if response.status != 200:
            return None, answer.decode(errors="replace")[:1000], seconds
        return json.loads(answer)["choices"][0], None, seconds

    def close(self):
        if self.process:
            self.process.kill()
            self.process.wait()


def llb(model, n_ctx, threads):
    """`llb serve` with one model on a free port."""
    program = os.environ.get("LLB_PROGRAM") or str(ROOT / "target" / "release" / "llb")
    command = [program, "serve", f"model={model}", "--port", "0", "--parallel", "1", "--no-access-log",
               "--n-ctx", str(n_ctx), "--n-threads", str(threads)]
    return started("llb", command, subprocess.STDOUT)


def llama_server(model, n_ctx, threads):
    """llama.cpp's server, from the package xllamacpp."""
    if importlib.util.find_spec("xllamacpp") is None:
        print("llama-server is not measured: pip install xllamacpp", file=sys.stderr)
        return None
    return started("llama-server", [sys.executable, "-c", SERVER, model, str(n_ctx), str(threads)], subprocess.DEVNULL)


def started(name, command, errors):
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
    said = []
    for line in process.stdout:
        said.append(line)
        if address := re.search(r"http://[\w.\[\]:]+", line):
            server = Endpoint(name, address.group())
            server.process = process
            return server
    sys.exit(f"{name} did not start:\n{''.join(said)}")


# The run.


def measure(servers, category, arguments, tool_choice, wrong):
    counts = [collections.Counter() for _ in servers]
    seconds = [0.0 for _ in servers]
    for number, case in enumerate(cases(category, arguments.first, arguments.cases)):
        for turn in range(len(servers)):
            which = (number + turn) % len(servers)
            choice, error, took = servers[which].ask(case, tool_choice, arguments.max_tokens)
            found = "error" if choice is None else verdict(case, choice["message"])
            counts[which][found] += 1
            seconds[which] += took
            if found != "right" and wrong:
                entry = {"server": servers[which].name, "category": category, "tool_choice": tool_choice, "id": case["id"],
                         "verdict": found, "expected": case["expected"], "reply": choice or error}
                print(json.dumps(entry, ensure_ascii=False), file=wrong, flush=True)
    for server, count, took in zip(servers, counts, seconds):
        cells = "".join(f"{count[name] or '':>10}" for name in VERDICTS)
        print(f"{category:<18}{server.name:<14}{cells}{took / max(1, sum(count.values())):>9.2f}", flush=True)
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL.gguf")
    parser.add_argument("--cases", type=int, default=20, help="number of cases of each category")
    parser.add_argument("--first", type=int, default=0, help="index of the first case of each category")
    parser.add_argument("--categories", default=",".join(CATEGORIES))
    parser.add_argument("--tool-choice", default="auto", help="auto, required, or both with a comma")
    parser.add_argument("--wrong", type=argparse.FileType("w", encoding="utf-8"), help="file for the wrong replies")
    parser.add_argument("--endpoint", action="append", default=[], metavar="NAME=URL", help="a server that is running")
    parser.add_argument("--only-llb", action="store_true", help="without llama.cpp's server")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--n-ctx", type=int, default=8192)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    if not arguments.models and not arguments.endpoint:
        parser.error("give a model file or an --endpoint")
    running = [Endpoint(*one.split("=", 1)) for one in arguments.endpoint]
    for model in arguments.models or [None]:
        started_here = []
        if model:
            started_here.append(llb(model, arguments.n_ctx, arguments.threads))
            if not arguments.only_llb:
                started_here.append(llama_server(model, arguments.n_ctx, arguments.threads))
        servers = [server for server in started_here if server] + running
        try:
            for tool_choice in arguments.tool_choice.split(","):
                print(f"\n{Path(model).name if model else 'endpoints'}, tool_choice {tool_choice}, {arguments.cases} cases from {arguments.first}")
                print(f"{'':<32}" + "".join(f"{name:>10}" for name in VERDICTS) + f"{'s each':>9}")
                totals = [collections.Counter() for _ in servers]
                for category in arguments.categories.split(","):
                    for total, count in zip(totals, measure(servers, category, arguments, tool_choice, arguments.wrong)):
                        total.update(count)
                for server, total in zip(servers, totals):
                    print(f"{'all':<18}{server.name:<14}" + "".join(f"{total[name] or '':>10}" for name in VERDICTS))
        finally:
            for server in started_here:
                if server:
                    server.close()


if __name__ == "__main__":
    main()
