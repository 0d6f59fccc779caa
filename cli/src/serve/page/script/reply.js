// A reply that comes: its deltas are shown with the next frame, and become a turn at its end.

import { $, counted } from "./dom.js";
import { call, events, ServerError } from "./server.js";
import { isNearEnd, keepReply, ReplyView, scrollToEnd } from "./turns.js";

const CUT = "Cut at the limit of tokens. The panel Request has max_tokens.";

export class Reply {
  constructor() {
    this.view = new ReplyView();
    this.message = { role: "assistant", content: "" };
    this.deltas = [];
    this.tokens = [];
    this.diagnostics = [];
    this.polyfills = [];
    $("log").append(this.view.root);
    scrollToEnd();
  }

  /** Reads the whole stream. Throws what went wrong. */
  async read(body, signal) {
    const response = await call("/v1/chat/completions", body, signal);
    for await (const chunk of events(response)) {
      if (chunk.error) throw new ServerError(chunk.error.message, { code: chunk.error.code });
      if (chunk.usage) this.usage = chunk.usage;
      this.diagnostics = chunk.diagnostics ?? this.diagnostics;
      this.polyfills = chunk.polyfills_applied ?? this.polyfills;
      const choice = chunk.choices?.[0];
      if (choice) this.add(choice);
    }
    if (!this.finish) throw new ServerError("The stream ended early.");
  }

  add({ delta, logprobs, finish_reason: finish }) {
    this.finish = finish ?? this.finish;
    this.first ??= performance.now();
    this.last = performance.now();
    // A fast model sends many in the time of one frame.
    if (this.deltas.push({ ...delta, tokens: logprobs?.content ?? [] }) === 1) {
      requestAnimationFrame(() => this.show());
    }
  }

  show() {
    const isNear = isNearEnd();
    const all = (name) => this.deltas.map((delta) => delta[name] ?? "").join("");
    const reasoning = all("reasoning_content"), content = all("content");
    if (reasoning) {
      this.message.reasoning_content = (this.message.reasoning_content ?? "") + reasoning;
      this.view.addReasoning(reasoning);
    }
    this.message.content += content;
    const parts = this.deltas.filter(({ content }) => content);
    if (parts.some(({ tokens }) => tokens.length)) {
      for (const { content, tokens } of parts) {
        this.tokens.push([content, tokens]);
        this.view.addText(content, tokens);
      }
    } else if (content) {
      this.view.addText(content);
    }
    for (const part of this.deltas.flatMap((delta) => delta.tool_calls ?? [])) {
      this.view.addCall(part);
    }
    this.deltas = [];
    if (isNear) scrollToEnd();
  }

  /** The turn, or null if nothing came. Calls of a reply that did not end are left out: they may
   * be cut. */
  turn(problem) {
    this.show();
    const isWhole = !problem && this.finish !== "length";
    const notes = this.diagnostics.map(({ message, code }) => `${message} [${code}]`);
    if (this.polyfills.length) notes.push("Polyfills that ran: " + this.polyfills.join(", "));
    const { calls } = this.view;
    if (isWhole && calls.length) {
      this.message.tool_calls = calls.map(({ id, function: called }) =>
        ({ id, type: "function", function: called }));
      this.message.content ||= null;
    } else if (calls.length) {
      notes.unshift("A tool call was cut, and is left out.");
    }
    const { content, reasoning_content: reasoning, tool_calls } = this.message;
    if (problem && !content && !reasoning) return null;
    if (problem?.name === "AbortError") notes.unshift("You stopped the reply here.");
    else if (problem) notes.unshift(problem.message);
    else if (this.finish === "length") notes.unshift(CUT);
    const turn = { role: "assistant", message: this.message, results: [], notes };
    if (tool_calls) turn.results = tool_calls.map(() => null);
    if (this.tokens.length) turn.tokens = this.tokens;
    if (this.usage) turn.facts = this.facts();
    keepReply(this.view, turn);
    return turn;
  }

  facts() {
    const { prompt_tokens: prompt, completion_tokens: count } = this.usage;
    const cached = this.usage.prompt_tokens_details?.cached_tokens ?? 0;
    const seconds = (this.last - this.first) / 1000;
    // In less time than this the network counts more than the model.
    const speed = count > 1 && seconds > 0.2
      ? ` at ${((count - 1) / seconds).toFixed(1)} per second` : "";
    const ofPrompt = `prompt ${counted(prompt, "token")}, ${cached} cached`;
    return `${counted(count, "token")}${speed}; ${ofPrompt}`;
  }
}
