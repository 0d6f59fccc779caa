#!/usr/bin/env python3
"""Writes a first corpus for the fuzz targets: seeds.py CONFORMANCE CORPUS

The seeds come from the shared conformance set. Its templates have licences of their vendors, so the
corpus is made when needed and never committed.
"""

import json
import pathlib
import sys

# Whole requests are long. A few contexts with each template show all keys to the fuzzer.
CONTEXTS = ["multi_step", "reasoning_tools", "typed_content", "documents_rag", "schema_zoo"]


def write(folder, name, content):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    if not path.exists():
        path.write_bytes(content)


def main():
    data, corpus = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    contexts = [json.loads((data / f"contexts/{name}.json").read_bytes()) for name in CONTEXTS]
    templates = sorted((data / "templates").glob("*.jinja"))
    for index, path in enumerate(templates):
        source = path.read_bytes()
        write(corpus / "template_source", path.stem, source)
        write(corpus / "template_info", path.stem, source)
        context = contexts[index % len(contexts)]
        request = {"chat_template": source.decode(), "bos_token": "<s>", "now": context["now"]}
        request["messages"] = context["messages"]
        request["chat_template_kwargs"] = context["kwargs"]
        for key in ["tools", "documents", "add_generation_prompt"]:
            if key in context:
                request[key] = context[key]
        text = json.dumps(request, ensure_ascii=False).encode()
        # The first byte selects the function.
        write(corpus / "template_request", f"render.{path.stem}", b"0" + text)
    for index, line in enumerate((data / "jinja-cases.jsonl").read_text().splitlines()):
        template = json.loads(line)["template"].encode()
        write(corpus / "template_source", f"case.{index}", template)
    for index, line in enumerate((data / "outputs/parse-cases.jsonl").read_text().splitlines()):
        case = json.loads(line)
        path = data / f"templates/{case['template']}.jinja"
        source = path.read_text() if path.exists() else "{{ messages[0].content }}"
        request = {"chat_template": source, "output": case["output_text"], "tools": case.get("tools") or []}
        text = json.dumps(request, ensure_ascii=False).encode()
        write(corpus / "template_request", f"parse.{index}", b"2" + text)
    print(f"    seeds of {len(templates)} templates")


main()
