// The panel "Request": system prompt, tools, sampling, polyfills. What it holds goes into requests.

import { $, element } from "./dom.js";

const POLYFILLS = ["apply_polyfills", "system_role", "developer_role", "same_role_merge", "tools",
  "tool_call_examples", "tool_calls", "empty_tool_calls", "object_arguments", "tool_responses",
  "result_order", "tool_call_ids", "reasoning", "typed_content", "null_content"];
export const NUMBERS = ["temperature", "top_k", "top_p", "min_p", "seed", "max_tokens"];
const WHOLE = ["top_k", "seed", "max_tokens"];
const EXAMPLE = [{ type: "function", function: { name: "get_weather",
  description: "The weather of a city", parameters: { type: "object",
    properties: { city: { type: "string" } }, required: ["city"] } } }];
/** The fields that are kept with a chat. */
const KEPT = ["system", "tools", "tool_choice", "enable_thinking", ...NUMBERS];

function option(name) {
  return name === "apply_polyfills" ? name : "polyfill_" + name;
}

/** The tools, or null while their text is wrong. */
export function tools() {
  const text = $("tools").value.trim();
  let value = [], error = "";
  try {
    value = text ? JSON.parse(text) : [];
    if (!Array.isArray(value)) throw new Error("expected a list of tools");
  } catch (wrong) {
    error = wrong.message;
  }
  $("tools").setAttribute("aria-invalid", String(error !== ""));
  $("tools-error").textContent = error;
  return error ? null : value;
}

export function withSystem(messages) {
  const system = $("system").value;
  return system ? [{ role: "system", content: system }, ...messages] : messages;
}

export function polyfills() {
  return Object.fromEntries(POLYFILLS.map((name) => [option(name), $(option(name)).checked]));
}

export function requestOf(messages) {
  const body = {
    model: $("model").value, stream: true, stream_options: { include_usage: true },
    messages: withSystem(messages), polyfills: polyfills(),
  };
  const declared = tools();
  if (declared === null) throw new Error("The tools in the panel Request are not valid JSON.");
  if (declared.length) body.tools = declared;
  if (declared.length && $("tool_choice").value) body.tool_choice = $("tool_choice").value;
  if ($("enable_thinking").value) body.enable_thinking = $("enable_thinking").value === "true";
  for (const name of NUMBERS) if ($(name).value !== "") body[name] = Number($(name).value);
  if ($("logprobs").checked) Object.assign(body, { logprobs: true, top_logprobs: 5 });
  if ($("try-draft").checked) body.chat_template = $("template").value;
  return body;
}

export function settings() {
  const values = KEPT.map((name) => [name, $(name).value]);
  return Object.fromEntries(values.filter(([, value]) => value !== ""));
}

export function restoreSettings(kept) {
  for (const name of KEPT) $(name).value = kept?.[name] ?? "";
  tools();
}

/** Makes the fields. */
export function startRequest() {
  for (const name of POLYFILLS) {
    const box = element("input", { type: "checkbox", id: option(name), checked: true });
    $("polyfills").append(element("label", {}, box, name === "apply_polyfills" ? "all" : name));
  }
  $("apply_polyfills").addEventListener("change", () => {
    for (const name of POLYFILLS.slice(1)) {
      $(option(name)).disabled = !$("apply_polyfills").checked;
    }
  });
  for (const name of NUMBERS) {
    const step = WHOLE.includes(name) ? "1" : "any";
    const field = element("input", { type: "number", id: name, min: 0, step });
    const label = element("span", { textContent: name });
    $("sampling").append(element("label", { className: "field" }, label, field));
  }
  $("tools").addEventListener("input", tools);
  $("example").addEventListener("click", () => {
    $("tools").value = JSON.stringify(EXAMPLE, null, 2);
    $("tools").dispatchEvent(new Event("input", { bubbles: true }));
  });
}
