// How turns look: the user's text with its files, and the model's reasoning, text and calls. Their
// buttons have `data-act`; chat.js does what they say.

import { $, element } from "./dom.js";
import { conversation, isSound, isUser } from "./conversation.js";
import { Markdown } from "./markdown.js";
import { addTokens } from "./tokens.js";

/** The elements of turns that are shown. */
const shown = new WeakMap();

/** Shows the turns. Elements of turns that have not changed stay, with what was typed in them. */
export function showTurns() {
  const log = $("log");
  const wanted = conversation.turns.map((turn, index) => {
    if (!shown.has(turn)) shown.set(turn, isUser(turn) ? userTurn(turn) : replyTurn(turn));
    const made = shown.get(turn);
    made.dataset.index = index;
    return made;
  });
  for (const child of [...log.children]) if (!wanted.includes(child)) child.remove();
  for (const [index, made] of wanted.entries()) {
    if (log.children[index] !== made) log.insertBefore(made, log.children[index] ?? null);
  }
}

export function isNearEnd() {
  const log = $("log");
  return log.scrollHeight - log.scrollTop - log.clientHeight < 48;
}

export function scrollToEnd() {
  $("log").scrollTop = $("log").scrollHeight;
}

function article(role, name) {
  return element("article", { className: "turn " + role }, element("h2", { textContent: name }));
}

function actions(names) {
  return element("div", { className: "actions" }, ...names.map((name) => {
    const made = element("button", { type: "button", textContent: name });
    made.dataset.act = name.toLowerCase();
    return made;
  }));
}

function userTurn(turn) {
  const made = article("user", "You");
  const bubble = element("div", { className: "bubble" });
  if (turn.text) bubble.append(element("div", { className: "text", textContent: turn.text }));
  bubble.append(...(turn.files ?? []).map(fileOfTurn));
  made.append(bubble, actions(["Copy", "Edit", "Retry", "Delete"]));
  return made;
}

/** A text to unfold, a picture, or a sound to play. */
function fileOfTurn(file) {
  const { name, text, url } = file;
  if (isSound(file)) {
    return element("figure", { className: "sound" },
      element("figcaption", { textContent: name }),
      element("audio", { src: url, controls: true, ariaLabel: name }));
  }
  if (url) return element("img", { src: url, alt: name, title: name });
  return element("details", {}, element("summary", { textContent: name }),
    element("pre", { tabIndex: 0, textContent: text }));
}

function replyTurn(turn) {
  const view = new ReplyView();
  const { message } = turn;
  if (message.reasoning_content) view.addReasoning(message.reasoning_content);
  if (turn.tokens) for (const [text, tokens] of turn.tokens) view.addText(text, tokens);
  else if (message.content) view.addText(message.content);
  const calls = message.tool_calls ?? [];
  for (const [index, call] of calls.entries()) view.addCall({ index, ...call });
  finish(view, turn);
  return view.root;
}

/** The reply that was shown as it came is now this turn. */
export function keepReply(view, turn) {
  finish(view, turn);
  shown.set(turn, view.root);
}

/** Adds what is known at the end of a reply. */
function finish(view, turn) {
  const { content, reasoning_content: reasoning, tool_calls: calls = [] } = turn.message;
  for (const [place, { card }] of view.calls.entries()) {
    if (calls[place]) card.append(resultForm(calls[place], turn, place));
    else card.remove();
  }
  view.fold();
  if (!content && !reasoning && !calls.length) {
    view.root.append(element("p", { className: "muted", textContent: "(an empty reply)" }));
  }
  if (turn.notes?.length) {
    view.root.append(element("ul", { className: "notes", ariaLabel: "Notes on the reply" },
      ...turn.notes.map((note) => element("li", { textContent: note }))));
  }
  const foot = actions(["Copy", "Edit", "Retry", "Delete"]);
  if (turn.facts) foot.append(element("span", { className: "facts", textContent: turn.facts }));
  view.root.append(foot);
}

/** The field for the result of a call. When all have one, the chat goes on. */
function resultForm(call, turn, place) {
  const value = turn.results?.[place] ?? "";
  const area = element("textarea", { rows: 2, required: true, className: "code", value });
  const label = element("label", { className: "field" },
    element("span", { textContent: "Result of " + call.function.name }), area);
  const give = element("button", { textContent: "Give result" });
  const form = element("form", { className: "result" }, label, give);
  form.dataset.place = place;
  setGiven(form, turn.results?.[place] != null);
  return form;
}

export function setGiven(form, isGiven) {
  form.querySelector("textarea").readOnly = isGiven;
  form.querySelector("button").hidden = isGiven;
}

/** A reply of the model, whole or as it comes. */
export class ReplyView {
  constructor() {
    this.root = article("assistant", "Model");
    this.calls = [];
    this.content = "";
  }
  addReasoning(text) {
    if (!this.reasoning) {
      this.reasoning = element("div", { className: "text" });
      this.summary = element("summary", { textContent: "Reasoning" });
      this.details = element("details", { className: "reasoning", open: true },
        this.summary, this.reasoning);
      this.root.append(this.details);
    }
    this.reasoning.append(text);
  }
  /** Folds the reasoning once there is an answer. */
  fold() {
    if (this.details && (this.text || this.calls.length)) this.details.open = false;
  }
  addText(text, tokens = []) {
    if (!this.text) {
      this.fold();
      this.root.append(this.text = element("div", { className: "text" }));
    }
    this.content += text;
    if (tokens.length) return addTokens(this.text, text, tokens);
    this.markdown ??= new Markdown(this.text);
    this.text.classList.add("markdown");
    this.markdown.set(this.content);
  }
  /** A part of a call. */
  addCall({ index, id, function: called }) {
    const call = this.calls[index] ??= this.newCall();
    call.id ||= id ?? "";
    call.function.name += called?.name ?? "";
    call.function.arguments += called?.arguments ?? "";
    call.name.textContent = "Calls " + call.function.name;
    call.pre.textContent = call.function.arguments;
  }
  newCall() {
    const call = { id: "", function: { name: "", arguments: "" } };
    call.name = element("h3");
    call.pre = element("pre");
    call.card = element("div", { className: "call" }, call.name, call.pre);
    this.root.append(call.card);
    return call;
  }
}
