#!/usr/bin/env python3
"""Checks the calls of a real model against their schemas, with a validator other than llb's.

    scripts/real-tools.py MODEL.gguf                   100 prompts each with "required" and "auto"
    scripts/real-tools.py MODEL.gguf --count 10 --choice required --show

Needs the package of bindings/python (from this repository, or installed), libllb.so (`LLB_LIBRARY`),
and the package `jsonschema[format]`. Prompt n has seed n and temperature 1.0. Each request offers
eight tools with nested schemas. Exit status: 0 all calls obey their schemas, 1 a call violates its
schema or a required call is missing, 2 wrong arguments.
"""

import argparse
import collections
import concurrent.futures
import json
import queue
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bindings" / "python" / "src"))

import jsonschema  # noqa: E402
import llb  # noqa: E402


def tool(name, description, properties, required, **others):
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False, **others}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def closed(properties, required=None, **others):
    required = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False, **others}


TOOLS = [
    tool(
        "create_order",
        "Order articles for a customer",
        {
            "customer": {"$ref": "#/$defs/customer"},
            "items": {"type": "array", "items": {"$ref": "#/$defs/item"}, "minItems": 1, "maxItems": 4},
            "priority": {"enum": ["low", "normal", "express"]},
            "note": {"type": "string", "maxLength": 80},
        },
        ["customer", "items"],
        **{
            "$defs": {
                "customer": closed(
                    {"id": {"type": "string", "pattern": "^C-[0-9]{4}$"}, "email": {"type": "string", "format": "email"}},
                    ["id"],
                ),
                "item": closed(
                    {
                        "sku": {"type": "string", "pattern": "^[A-Z]{3}-\\d{3}$"},
                        "quantity": {"type": "integer", "minimum": 1, "maximum": 99},
                        "price": {"type": "number", "exclusiveMinimum": 0, "maximum": 1000},
                    },
                    ["sku", "quantity"],
                ),
            }
        },
    ),
    tool(
        "schedule_meeting",
        "Put a meeting into the calendar",
        {
            "title": {"type": "string", "minLength": 3, "maxLength": 60},
            "date": {"type": "string", "format": "date"},
            "start": {"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"},
            "minutes": {"type": "integer", "minimum": 15, "maximum": 240, "multipleOf": 15},
            "attendees": {
                "type": "array",
                "items": closed({"name": {"type": "string", "minLength": 1, "maxLength": 40}, "optional": {"type": "boolean"}}, ["name"]),
                "minItems": 1,
                "maxItems": 5,
            },
        },
        ["title", "date", "start", "attendees"],
    ),
    tool(
        "search_flights",
        "Search flights between two airports",
        {
            "from": {"type": "string", "pattern": "^[A-Z]{3}$"},
            "to": {"type": "string", "pattern": "^[A-Z]{3}$"},
            "when": {
                "anyOf": [
                    closed({"on": {"type": "string", "format": "date"}}),
                    closed({"between": {"type": "array", "items": {"type": "string", "format": "date"}, "minItems": 2, "maxItems": 2}}),
                ]
            },
            "passengers": closed(
                {
                    "adults": {"type": "integer", "minimum": 1, "maximum": 9},
                    "children": {"type": "integer", "minimum": 0, "maximum": 9},
                },
                ["adults"],
            ),
            "cabin": {"type": ["string", "null"], "enum": ["economy", "business", None]},
        },
        ["from", "to", "when", "passengers"],
    ),
    tool(
        "set_thermostat",
        "Set the temperature of rooms",
        {
            "rooms": {
                "type": "array",
                "items": closed(
                    {
                        "room": {"enum": ["kitchen", "bedroom", "living room", "bathroom"]},
                        "celsius": {"type": "number", "minimum": 5, "maximum": 30},
                    }
                ),
                "minItems": 1,
                "maxItems": 4,
            },
            "mode": {"const": "heat"},
            "hold": {"type": "boolean"},
        },
        ["rooms", "mode"],
    ),
    tool(
        "file_ticket",
        "File a ticket with the support team",
        {
            "severity": {"type": "integer", "enum": [1, 2, 3]},
            "component": {"type": "string", "enum": ["api", "web", "billing"]},
            "contact": {
                "oneOf": [
                    closed({"kind": {"const": "email"}, "address": {"type": "string", "format": "email"}}),
                    closed({"kind": {"const": "phone"}, "number": {"type": "string", "pattern": "^\\+[0-9]{7,12}$"}}),
                ]
            },
            "labels": {"type": "array", "items": {"type": "string", "pattern": "^[a-z][a-z0-9-]{1,15}$"}, "maxItems": 3},
            "summary": {"type": "string", "minLength": 5, "maxLength": 120},
        },
        ["severity", "component", "contact", "summary"],
    ),
    tool(
        "query_table",
        "Read rows of a database table",
        {
            "table": {"enum": ["users", "orders", "events"]},
            "columns": {"type": "array", "items": {"type": "string", "pattern": "^[a-z_]{1,20}$"}, "minItems": 1, "maxItems": 5},
            "where": {"$ref": "#/$defs/condition"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 500},
        },
        ["table", "columns"],
        **{
            "$defs": {
                "condition": closed(
                    {
                        "column": {"type": "string", "pattern": "^[a-z_]{1,20}$"},
                        "operator": {"enum": ["=", "<", ">", "like"]},
                        "value": {"type": ["string", "number", "boolean"], "maxLength": 30},
                    }
                )
            }
        },
    ),
    tool(
        "plan_route",
        "Plan a route through places",
        {
            "stops": {
                "type": "array",
                "prefixItems": [{"$ref": "#/$defs/place"}, {"$ref": "#/$defs/place"}],
                "items": {"$ref": "#/$defs/place"},
                "minItems": 2,
                "maxItems": 4,
            },
            "by": {"enum": ["car", "bicycle", "foot"]},
            "avoid": {"type": "array", "items": {"enum": ["tolls", "ferries", "motorways"]}, "maxItems": 2},
        },
        ["stops", "by"],
        **{
            "$defs": {
                "place": closed(
                    {
                        "name": {"type": "string", "minLength": 1, "maxLength": 40},
                        "position": closed(
                            {
                                "lat": {"type": "number", "minimum": -90, "maximum": 90},
                                "lon": {"type": "number", "minimum": -180, "maximum": 180},
                            }
                        ),
                    },
                    ["name"],
                )
            }
        },
    ),
    tool(
        "register_device",
        "Register a device in the inventory",
        {
            "serial": {"type": "string", "format": "uuid"},
            "address": {"type": "string", "format": "ipv4"},
            "installed": {"type": "string", "format": "date-time"},
            "sensors": {
                "type": "array",
                "items": {
                    "anyOf": [
                        closed({"type": {"const": "thermometer"}, "range": {"type": "array", "items": {"type": "integer", "minimum": -50, "maximum": 150}, "minItems": 2, "maxItems": 2}}),
                        closed({"type": {"const": "camera"}, "megapixels": {"type": "number", "minimum": 0.3, "maximum": 50}}),
                    ]
                },
                "minItems": 1,
                "maxItems": 3,
            },
        },
        ["serial", "sensors"],
    ),
]

TASKS = [
    "Order two of ABC-123 and one of XYZ-999 for customer C-0042.",
    "Customer C-1007 (ann@example.org) wants 12 pieces of KLM-555 by express.",
    "Set up a meeting about the budget with Ann and Bob on 2026-03-14 at 09:30.",
    "Schedule a 45 minute review with Carol; Dave may come if he likes. Monday, 2 February 2026, 14:00.",
    "Find me a flight from Berlin to Lisbon on 2026-05-01 for two adults.",
    "I want to fly from JFK to SFO some time between 1 and 8 July 2026 with my three children, business class.",
    "It is cold in the kitchen and the bedroom. Make it 21.5 degrees in both.",
    "Heat the bathroom to 24 degrees until I say otherwise.",
    "The billing page shows a wrong total. Please tell support, they can call me at +49301234567.",
    "File a ticket: the API answers 500 since noon, very urgent, write to ops@example.com.",
    "Show me name and mail of all users older than 30, at most 20 of them.",
    "Which events are there of the kind 'login'? I need id, kind and time.",
    "Plan a bicycle tour from Amsterdam by way of Utrecht to Arnhem, without ferries.",
    "How do I get by car from Cologne (50.94, 6.96) to Munich without motorways?",
    "Register the new camera with 12 megapixels, serial 123e4567-e89b-12d3-a456-426614174000, at 192.168.0.17.",
    "A device with a thermometer from -20 to 80 degrees was installed today at 8 in the morning. Add it to the inventory.",
    "What is the capital of France?",
    "Thank you, that was helpful!",
    "Write a haiku about autumn.",
    "Order whatever you think is best, and then tell support about it.",
]
WAYS = ["{}", "{} Be quick.", "Please help me. {}", "{} Do everything in one go.", "Hi! {} Thanks in advance."]

FORMATS = jsonschema.Draft202012Validator.FORMAT_CHECKER
VALIDATORS = {
    each["function"]["name"]: jsonschema.Draft202012Validator(each["function"]["parameters"], format_checker=FORMATS)
    for each in TOOLS
}
for name, validator in VALIDATORS.items():
    validator.check_schema(validator.schema)
missing = {"date", "date-time", "email", "ipv4", "uuid"} - set(FORMATS.checkers)
if missing:
    sys.exit(f"jsonschema does not check {sorted(missing)}; install jsonschema[format]")


def faults(call):
    """The problems of a call, as worded by jsonschema."""
    validator = VALIDATORS.get(call["name"])
    if validator is None:
        return [f"unknown tool {call['name']}"]
    try:
        arguments = json.loads(call["arguments"])
    except ValueError as error:
        return [f"invalid JSON: {error}"]
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(arguments)]


def run(chats, choice, numbers, max_tokens, show):
    seen = collections.Counter()
    finish, diagnostics, called = collections.Counter(), collections.Counter(), collections.Counter()
    bad = []

    def ask(number):
        messages = [{"role": "user", "content": WAYS[number // len(TASKS) % len(WAYS)].format(TASKS[number % len(TASKS)])}]
        chat = chats.get()
        try:
            return chat.create(
                messages, TOOLS, tool_choice=choice, temperature=1.0, seed=number, max_tokens=max_tokens
            )
        finally:
            chats.put(chat)

    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(chats.qsize()) as pool:
        for number, reply in zip(numbers, pool.map(ask, numbers)):
            finish[reply["finish_reason"]] += 1
            diagnostics.update(each["code"] for each in reply["diagnostics"])
            seen["tokens"] += reply["usage"]["completion_tokens"]
            seen["decode ms"] += reply["timings"]["predicted_ms"]
            seen["calls"] += len(reply["tool_calls"])
            seen["without"] += not reply["tool_calls"]
            if choice == "required" and not reply["tool_calls"] and reply["finish_reason"] != "length":
                bad.append(f"prompt {number}: a required call is missing: {reply}")
            for call in reply["tool_calls"]:
                wrong = faults(call)
                called[call["name"]] += 1
                seen["valid"] += not wrong
                bad.extend(f"prompt {number}: {call['name']} {call['arguments']}: {each}" for each in wrong)
            if show:
                print(json.dumps({"prompt": number, **{key: reply[key] for key in ("text", "tool_calls", "finish_reason", "diagnostics")}}))
    seconds = time.monotonic() - started
    print(f"{choice}: {len(numbers)} prompts, {seen['calls']} calls, {seen['valid']} valid, {seen['without']} prompts without a call")
    print(f"  finish reasons {dict(finish)}, diagnostics {dict(diagnostics)}")
    print(f"  calls {dict(called)}")
    print(f"  {seen['tokens']} tokens in {seconds:.0f} s: {seen['tokens'] / seconds:.1f} tokens/s in total, ", end="")
    print(f"{1000 * seen['tokens'] / max(seen['decode ms'], 1):.1f} per reply")
    for each in bad:
        print(f"  {each}")
    sys.stdout.flush()
    return not bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--count", type=int, default=100, help="number of prompts, with seeds from 0 [100]")
    parser.add_argument("--choice", choices=["required", "auto"], action="append", help="tool_choice [both]")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--jobs", type=int, default=3, help="concurrent replies [3]")
    parser.add_argument("--threads", type=int, help="n_threads [the engine's default]")
    parser.add_argument("--policy", default="native", help="tool_policy [native]")
    parser.add_argument("--show", action="store_true", help="print each reply")
    arguments = parser.parse_args()
    options = {"n_threads": arguments.threads} if arguments.threads else {}
    chats = queue.SimpleQueue()
    for _ in range(arguments.jobs):
        chats.put(llb.Chat(arguments.model, tool_policy=arguments.policy, n_ctx=4096, **options))
    # The common prefix of the prompts is computed once and copied.
    first = chats.get()
    first.create([{"role": "user", "content": "Hello"}], TOOLS, max_tokens=1)
    chats.put(first)
    numbers = range(arguments.count)
    choices = arguments.choice or ["required", "auto"]
    good = [run(chats, choice, numbers, arguments.max_tokens, arguments.show) for choice in choices]
    while not chats.empty():
        chats.get().close()
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
