"""transformers and bare jinja2 as peers of benches/template.rs: one JSON object per line, both ways.

{"do": "compile", "template", "bos_token", "eos_token", "now"} -> {"seconds"}
{"do": "render", "conversation": JSON text, "times", "bare"} -> {"seconds" for each, "text" of the last}
{"do": "version"} -> {"version"}

A failure is {"error"}. Only the work is timed: parsing the conversation and rendering it with the
last compiled template.
"""

import json
import sys
from datetime import datetime
from time import perf_counter

import jinja2
import transformers
from transformers.utils import chat_template_utils


class FixedTime(datetime):
    """The clock of strftime_now. Both sides render the same date."""

    fixed = datetime(2026, 1, 1)

    @classmethod
    def now(cls, tz=None):
        return cls.fixed


chat_template_utils.datetime = FixedTime


class Peer:
    def compile(self, request):
        self.source = request["template"]
        self.special = {"bos_token": request["bos_token"], "eos_token": request["eos_token"]}
        FixedTime.fixed = datetime.fromisoformat(request["now"])
        start = perf_counter()
        self.template = chat_template_utils._compile_jinja_template(self.source)
        return {"seconds": perf_counter() - start}

    def whole(self, text):
        """Renders like `apply_chat_template(..., tokenize=False)`."""
        context = json.loads(text)
        rendered, _ = chat_template_utils.render_jinja_template(
            conversations=[context["messages"]],
            tools=context.get("tools"),
            documents=context.get("documents"),
            chat_template=self.source,
            add_generation_prompt=context["add_generation_prompt"],
            **self.special,
            **context.get("kwargs", {}),
        )
        return rendered[0]

    def bare(self, text):
        """Renders the template only: messages are neither checked, copied nor prepared."""
        context = json.loads(text)
        return self.template.render(
            messages=context["messages"],
            tools=context.get("tools"),
            documents=context.get("documents"),
            add_generation_prompt=context["add_generation_prompt"],
            **self.special,
            **context.get("kwargs", {}),
        )

    def render(self, request):
        run = self.bare if request["bare"] else self.whole
        conversation, times = request["conversation"], request["times"]
        start = perf_counter()
        for _ in range(times):
            text = run(conversation)
        return {"seconds": (perf_counter() - start) / times, "text": text}

    def version(self, _request):
        python = sys.version.split()[0]
        return {"version": f"transformers {transformers.__version__}, jinja2 {jinja2.__version__}, Python {python}"}


peer = Peer()
for line in sys.stdin:
    request = json.loads(line)
    try:
        reply = getattr(peer, request["do"])(request)
    except Exception as error:
        reply = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(reply), flush=True)
