"""Composed templates: their renders in llb and in other Jinja engines."""

import datetime
import json

import pytest

import llb

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "wetter_für",
            "description": 'Says <b>it\'s</b> "so" {content} 天气 😀',
            "parameters": {
                "type": "object",
                "properties": {"t": {"type": "number", "default": 2.0}},
                "required": [],
            },
        },
    },
    {"type": "function", "function": {"name": "add", "parameters": {"z": 1, "a": [], "m": {}}}},
]
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "add", "arguments": {"x": 1.5, "ü": 'a\n"b"<\'', "l": []}},
}
MODE = {
    "default": True,
    "enum": ["f", None],
    "type": ["string", "null"],
    "x-1": -1.5,
    "description": " How\n",
}
ORDERED = {
    "type": "function",
    "function": {
        "strict": False,
        "parameters": {"required": ["m"], "properties": {"m": MODE}, 'a"b': None},
        "name": "go",
    },
}
SKILLS = [{"name": "sum", "description": "Adds {tools}."}, {"name": "bare"}]
TALK = [
    {"role": "system", "content": "Be {tools} brief.\\n"},
    {
        "role": "user",
        "content": [{"type": "text", "text": "q1 {content}"}, {"type": "text", "text": " {{x}}"}],
    },
    {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "c2"}]},
    {"role": "tool", "content": "r1", "tool_call_id": "c1"},
    {"role": "tool", "content": "r2", "tool_call_id": "c2"},
    {"role": "assistant", "content": "  a1\n"},
    {"role": "user", "content": "q2"},
]
THOUGHTS = [
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": "<think>\nplan\n</think>\n\na"},
    {"role": "user", "content": "<o>1</o>"},
    {"role": "assistant", "content": "b", "reasoning_content": "why"},
    {"role": "assistant", "content": "c"},
    {"role": "user", "content": "end"},
]
CONVERSATIONS = [
    {"messages": TALK, "tools": TOOLS, "skills": SKILLS, "add_generation_prompt": True},
    {"messages": TALK[1:], "tools": TOOLS[:1], "add_generation_prompt": False},
    {"messages": TALK[1:2], "skills": SKILLS, "add_generation_prompt": True},
    {
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": "", "tool_calls": []},
        ]
    },
    {"messages": THOUGHTS, "add_generation_prompt": True},
    {"messages": THOUGHTS[:5], "add_generation_prompt": False},
    {"messages": THOUGHTS[:2], "add_generation_prompt": True},
    {
        "messages": [{"role": "system", "content": ""}, *TALK[1:2]],
        "tools": [],
        "add_generation_prompt": True,
    },
    {"messages": [{"role": "system", "content": ""}, *TALK[5:]], "tools": [ORDERED]},
]
SPEC = {
    "system_template": "<s>{system_message}{tools}{skills}</s>\n",
    "system_message": "Default.",
    "user_template": "<u>{content}</u>\n",
    "user_template_with_tools": "<u>{tools}|{content}</u>\n",
    "assistant_template": "<a> {{x}}\n{content}{tool_calls}</a>\n",
    "reasoning_template": "<think>{reasoning}</think>",
    "observations_template": "<o>{observations}</o>\n",
    "single_observation_template": "[{observation}]",
    "tool_calls_template": "<cs>{tool_calls}</cs>",
    "single_tool_call_template": "<c>{tool_call}</c>",
    "tools_template": "T\t{tools}\n",
    "skills_template": "S{skills}",
    "stop_words": ["</a>"],
}
POLICIES = [
    {},
    {
        "global_policy": {"prefix": "<bos>"},
        "assistant_policy": {"content_processor": {"kind": "strip"}},
    },
    {"tool_policy": {"placement": "FIRST_USER", "formatter": {"kind": "JsonIndentedFormatter"}}},
    {
        "tool_policy": {
            "placement": "LAST_USER",
            "formatter": {"kind": "JsonCompactFormatter", "sort_keys": True},
        }
    },
    {"tool_policy": {"formatter": {"kind": "JsonFormatter", "indent": 0, "joiner": " '\\' "}}},
    {
        "tool_policy": {
            "content_processor": {"kind": "pick_function"},
            "formatter": {"kind": "JsonCompactFormatter", "ascii": True},
            "tool_call_content_processor": {"kind": "dsml_call"},
        }
    },
    {
        "single_tool_template": "<t>{tool}</t>",
        "tool_policy": {
            "formatter": {"kind": "YamlFormatter"},
            "tool_call_content_processor": {"kind": "kimi_call"},
        },
    },
    {"tool_policy": {"formatter": {"kind": "YamlFormatter"}}},
    {
        "system_policy": {
            "use_system_without_system_message": False,
            "content_processor": {"kind": "date_header"},
        },
        "assistant_policy": {"content_processor": {"kind": "prepend_if_nonempty", "text": "\r\n"}},
        "unknown_roles": "as_user",
    },
    {
        "last_assistant_template": "<a>{content}{tool_calls}<end>",
        "late_system_template": "<s>{content}</s>",
        "no_thinking_prompt": "<a><think></think>",
        "ending": "<eof>",
        "opener_after": ["user", "start"],
        "assistant_policy": {
            "keep_reasoning": "last_turn",
            "empty_reasoning": "last_turn",
            "inline_reasoning": {"start": "<think>", "end": "</think>"},
            "no_question": {"start": "<o>", "end": "</o>"},
        },
    },
    {
        "last_assistant_template": "|<a>{content}{tool_calls}",
        "last_assistant_with_prompt": False,
        "user_template": "|<u>{content}",
        "assistant_template": "|<a>{content}{tool_calls}|",
        "first_turn_without": "|",
        "prompt_after_answer": "<go>",
        "no_prompt_after": ["system", "tool"],
        "content_parts": "drop",
        "assistant_policy": {"empty_reasoning": "last"},
        "system_policy": {"use_system_without_system_message": False},
    },
    {
        "single_tool_call_template": "<f={name}>\n{arguments}</f>",
        "argument_template": "<p={key}>\n{value}\n</p>\n",
        "single_observation_template": "[{name} {tool_call_id}: {observation}]",
        "assistant_policy": {"null_content": "None"},
        "tool_policy": {
            "call_joiner": "\n",
            "call_separator": "\n\n",
            "argument_values": "python",
            "observation_content_processor": {"kind": "json"},
            "observation_joiner": ", ",
            "observations_end": "!",
        },
    },
    {
        "single_tool_call_template": "{id}:{name}{{{arguments}}}",
        "argument_template": "{key}:{value}",
        "assistant_template_with_calls": "<a>{tool_calls}<c>\n",
        "assistant_template_with_empty_calls": "<a>{content}[]</a>\n",
        "tool_policy": {"argument_joiner": ",", "argument_values": "bare", "argument_quote": "'"},
    },
    {
        "system_policy": {"placement": "FIRST_USER", "empty_message": "as_none"},
        "tool_policy": {"placement": "FIRST_USER", "empty_list": "as_tools"},
    },
    {
        "system_template": "<{date}>{system_message}{tools}",
        "system_policy": {"placement": "LAST_USER", "date_format": '%Y-%m-%d "%B"'},
        "tool_policy": {"formatter": {"kind": "JsonCompactFormatter"}, "empty_list": "as_tools"},
    },
    {
        "system_template": "<s>{tools}{system_message}</s>",
        "system_policy": {
            "use_system_without_system_message": False,
            "content_processor": {"kind": "prepend_if_tools", "text": "\n\n", "empty": True},
            "empty_message": "as_none",
        },
        "tool_policy": {"formatter": {"kind": "XmlFormatter"}},
    },
    {
        "single_tool_template": "{tool};",
        "tool_policy": {
            "formatter": {"kind": "XmlFormatter", "first": ["default"], "last": ["required", 'a"b']}
        },
    },
    {
        "single_tool_template": "# {name}: {description}\n{parameters} {tool}\n",
        "tool_policy": {"formatter": {"kind": "JsonFormatter", "indent": 1}},
    },
    {"tool_policy": {"formatter": {"kind": "YamlFormatter"}, "empty_list": "as_tools"}},
]


def specs():
    for entry in llb.template_compose(list=True)["templates"]:
        if entry["source"] == "generated":
            yield entry["name"]
    for policy in POLICIES:
        yield {**SPEC, **policy}


def rendered(conversation, **template):
    return llb.template_render(
        **template, **conversation, polyfills={"apply_polyfills": False}, now="2024-07-26T00:00:00Z"
    )["prompt"]


def variables(composed, conversation):
    """The variables that another host passes to the template. PyYAML writes `tools_yaml`."""
    values = {name: value for name, value in conversation.items() if name != "messages"}
    if composed["host_vars"] and conversation.get("tools") is not None:
        yaml = pytest.importorskip("yaml")

        class Dumper(yaml.SafeDumper):
            """Quotes multi-line strings, as llb does."""

        def text(dumper, data):
            style = '"' if "\n" in data else None
            return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=style)

        Dumper.add_representer(str, text)

        def dump(tools):
            return yaml.dump(
                tools, Dumper=Dumper, allow_unicode=True, sort_keys=False, width=float("inf")
            )

        tools = values["tools"]
        one_by_one = "single_tool_template" in composed["spec"]
        values["tools_yaml"] = [dump([tool]) for tool in tools] if one_by_one else dump(tools)
    return {"add_generation_prompt": True, **values}


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def raise_exception(message):
    raise ValueError(message)


def strftime_now(form):
    return datetime.datetime(2024, 7, 26).strftime(form)


def jinja2_engine(trim):
    sandbox = pytest.importorskip("jinja2.sandbox")
    engine = sandbox.ImmutableSandboxedEnvironment(trim_blocks=trim, lstrip_blocks=trim)
    engine.filters["tojson"] = tojson
    engine.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    return lambda template, values: engine.from_string(template).render(**values)


def minijinja_engine(trim):
    minijinja = pytest.importorskip("minijinja")
    functions = {"raise_exception": raise_exception, "strftime_now": strftime_now}
    engine = minijinja.Environment(filters={"tojson": tojson}, globals=functions)
    engine.trim_blocks = engine.lstrip_blocks = trim
    engine.auto_escape_callback = lambda name: False
    return lambda template, values: engine.render_str(template, **values)


@pytest.mark.parametrize("make", [jinja2_engine, minijinja_engine])
@pytest.mark.parametrize("trim", [True, False])
def test_other_engines_render_the_same(make, trim):
    render, compared = make(trim), 0
    for components in specs():
        composed = llb.template_compose(components=components)
        for conversation in CONVERSATIONS:
            try:
                ours = rendered(conversation, components=components)
            except llb.LlbError as error:
                assert error.details["reason"] == "no_observations_template"
                continue
            values = variables(composed, conversation)
            theirs = render(
                composed["chat_template"], {"messages": conversation["messages"], **values}
            )
            assert theirs == ours, (components, conversation)
            compared += 1
    assert compared > 70


def test_components_render_as_their_composed_template():
    for components in specs():
        composed = llb.template_compose(components=components)
        again = llb.template_compose(components=composed["spec"])
        assert (again["chat_template"], again["spec"]) == (
            composed["chat_template"],
            composed["spec"],
        )
        conversation = CONVERSATIONS[2]
        by_text = rendered(conversation, chat_template=composed["chat_template"])
        assert by_text == rendered(conversation, components=components)


def test_masks():
    messages = [
        {"role": "user", "content": "ü"},
        {"role": "assistant", "content": "one </a>"},
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "two"},
    ]
    reply = llb.template_render(components=SPEC, messages=messages, mask="all")
    prompt = reply["prompt"].encode()
    texts = [prompt[span["start"] : span["end"]].decode() for span in reply["mask"]]
    assert texts == ["one </a></a>", "two</a>"]
    assert [span["message"] for span in reply["mask"]] == [1, 3]
    assert len(llb.template_render(components=SPEC, messages=messages, mask="last")["mask"]) == 1


def test_registry():
    with pytest.raises(llb.LlbError) as unknown:
        llb.template_compose(components="unregistered")
    assert unknown.value.details == {"reason": "unknown_template", "path": "components"}
    llb.template_compose(components={**SPEC, "name": "mine"}, register=True)
    assert llb.template_compose(components="mine")["spec"]["name"] == "mine"
    for name, more, taken in [
        ("mine", {}, True),
        ("mine", {"override": True}, False),
        ("qwen2.5", {"override": True}, True),
    ]:
        try:
            llb.template_compose(components={**SPEC, "name": name}, register=True, **more)
            assert not taken
        except llb.LlbError as error:
            assert taken and error.details["reason"] == "name_taken"


@pytest.mark.parametrize(
    "changed, reason, path",
    [
        ({"user_template": None}, "missing_field", "components.user_template"),
        ({"user_template": "{text}"}, "bad_slot", "components.user_template"),
        ({"assistant_template": "{content}{content}"}, "bad_slot", "components.assistant_template"),
        ({"tools_template": '{"name": {tools}}'}, "unbalanced_brace", "components.tools_template"),
        (
            {"tool_policy": {"placement": "SEPARATE"}},
            "bad_value",
            "components.tool_policy.placement",
        ),
        (
            {"tool_policy": {"formatter": {"kind": "Xml"}}},
            "bad_value",
            "components.tool_policy.formatter.kind",
        ),
        (
            {"system_policy": {"content_processor": {"kind": "kimi_call"}}},
            "bad_value",
            "components.system_policy.content_processor.kind",
        ),
        ({"observations_template": "<o></o>"}, "bad_slot", "components.observations_template"),
        ({"assistant_end": "x"}, "bad_value", "components.assistant_end"),
        ({"version": 2}, "bad_value", "components.version"),
        ({"system_policy": []}, "bad_value", "components.system_policy"),
    ],
)
def test_invalid_components_are_refused(changed, reason, path):
    with pytest.raises(llb.LlbError) as refused:
        llb.template_compose(components={**SPEC, **changed})
    assert refused.value.code == "INVALID_REQUEST"
    assert refused.value.details == {"reason": reason, "path": path}
    assert path in refused.value.message


def test_lints_are_reported_and_are_errors_when_strict():
    lossy = {"user_template": "{content}", "assistant_template": "{content}"}
    misspelt = {**lossy, "user_tmplate": "x"}
    composed = llb.template_compose(components=misspelt)
    assert composed["ignored_keys"] == ["components.user_tmplate"]
    codes = [finding["code"] for finding in composed["findings"]]
    assert codes == [
        "tools_without_place",
        "skills_without_place",
        "calls_without_place",
        "observations_missing",
    ]
    assert composed["tool_support"] == "polyfilled"
    for components, reason in [(misspelt, "unknown_field"), (lossy, "tools_without_place")]:
        with pytest.raises(llb.LlbError) as strict:
            llb.template_compose(components=components, strict=True)
        assert strict.value.details["reason"] == reason


def test_the_components_of_a_template_are_derived():
    composed = llb.template_compose(components=SPEC)
    derived = llb.template_compose(derive_from={"chat_template": composed["chat_template"]})
    assert {name: part["status"] for name, part in derived["parts"].items()} == dict.fromkeys(
        ["chat", "system", "tools", "calls", "results"], "exact"
    )
    for conversation in CONVERSATIONS:
        by_components = rendered(conversation, components=derived["spec"])
        assert by_components == rendered(conversation, chat_template=derived["chat_template"])
        if "reasoning_content" not in json.dumps(conversation):
            assert by_components == rendered(conversation, chat_template=composed["chat_template"])
    nothing = llb.template_compose(derive_from={"chat_template": "always the same"})
    assert (nothing["spec"], nothing["chat_template"]) == (None, None)
    assert {part["status"] for part in nothing["parts"].values()} <= {"opaque", "ignores"}
    with pytest.raises(llb.LlbError) as broken:
        llb.template_compose(derive_from={"chat_template": "{% if %}"})
    assert broken.value.code == "TEMPLATE_ERROR"
