// The panel "Prompt": what the model gets, coloured by origin, with the message that is typed.

import { $, counted, element } from "./dom.js";
import { call } from "./server.js";
import { contentOf, conversation, messagesOf } from "./conversation.js";
import { NUMBERS, requestOf } from "./request.js";
import { draft } from "./composer.js";

let explainTimer = 0;
let explaining = null;

export function explainSoon() {
  clearTimeout(explainTimer);
  explainTimer = setTimeout(explain, 200);
}

/** The messages so far, with the one that is typed. */
export function messagesWithDraft() {
  const typed = draft(), sent = messagesOf(conversation.turns);
  return typed && !document.body.classList.contains("running")
    ? [...sent, { role: "user", content: contentOf(typed) }] : sent;
}

async function explain() {
  explaining?.abort();
  const own = explaining = new AbortController();
  try {
    const body = requestOf(messagesWithDraft());
    if (!body.messages.length) {
      return showPrompt(null, "Type a message to see its prompt here, before it is sent.");
    }
    const response = await call("/v1/explain", body, own.signal);
    showPrompt(await response.json(), "", body.messages);
  } catch (error) {
    if (error.name !== "AbortError") showPrompt(null, error.message);
  }
}

function showPrompt(explanation, note, messages = []) {
  $("tokens").textContent = note || counts(explanation);
  const applied = explanation?.polyfills_applied ?? [];
  $("applied").textContent = explanation
    ? "Polyfills that ran: " + (applied.join(", ") || "none") : "";
  $("notes").replaceChildren(...notes(explanation?.diagnostics));
  for (const name of NUMBERS) {
    if (explanation) $(name).placeholder = explanation.sampling?.[name] ?? "";
  }
  const kinds = new Map([["template", "template"]]);
  $("prompt").replaceChildren(...(explanation ? pieces(explanation, messages, kinds) : []));
  $("origins").replaceChildren(...(explanation ? [...kinds] : []).map(([label, kind]) =>
    element("li", { className: kind, textContent: label })));
}

/** What polyfills did to the messages, and other remarks. */
export function notes(diagnostics) {
  return (diagnostics ?? []).map(({ message_index: index, message, code }) => {
    const place = index === undefined ? "" : `messages[${index}]: `;
    return element("li", { textContent: `${place}${message} [${code}]` });
  });
}

function counts({ prompt_tokens: all, cached_tokens: cached, tokens_left: left }) {
  const parts = [all == null ? "" : counted(all, "token"),
    cached == null ? "" : `${cached} of them cached`,
    left == null ? "" : `${left.toLocaleString("en")} left in the context`];
  return parts.filter(Boolean).join(", ");
}

/** The prompt in parts by their origin. Offsets of spans count bytes of UTF-8. */
export function pieces({ prompt, spans }, messages, kinds = new Map()) {
  const bytes = new TextEncoder().encode(prompt);
  const decoder = new TextDecoder();
  return (spans ?? []).map(({ start, end, path }) => {
    const text = decoder.decode(bytes.subarray(start, end));
    if (!path) return text;
    const [label, kind] = origin(path, messages);
    kinds.set(label, kind);
    return element("span", { className: kind, title: path, textContent: text });
  });
}

function origin(path, messages) {
  if (path.startsWith("tools")) return ["tools", "tools"];
  const index = /^messages\[(\d+)\]/.exec(path)?.[1];
  const role = messages[index]?.role;
  if (!role) return [path, "other"];
  return [role, { user: "user-text", assistant: "assistant-text" }[role] ?? role];
}

export function startPrompt() {
  conversation.addEventListener("change", explainSoon);
}
