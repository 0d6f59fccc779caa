// The panel "Template": an editor for the chat template, with lints and the prompt of the chat. Its
// draft can be used for the chat.

import { $, button, counted, element } from "./dom.js";
import { call } from "./server.js";
import { conversation } from "./conversation.js";
import { polyfills, tools, withSystem } from "./request.js";
import { messagesWithDraft, notes, pieces } from "./prompt.js";

let checkTimer = 0;
let checking = null;
/** The model whose template the editor has, or a draft of it. */
let original = null;

export function templateSoon() {
  clearTimeout(checkTimer);
  if (!$("panel-template").hidden) checkTimer = setTimeout(checkTemplate, 250);
}

/** Lints the template of the editor, and renders the chat with it. */
export async function checkTemplate() {
  checking?.abort();
  const own = checking = new AbortController();
  const model = $("model").value, isOriginal = original !== model;
  const sent = messagesWithDraft();
  const messages = withSystem(sent.length ? sent : [{ role: "user", content: "Hello" }]);
  const body = { model, messages, polyfills: polyfills() };
  const declared = tools();
  if (declared?.length) body.tools = declared;
  if (isOriginal) $("try-draft").checked = false;
  else body.chat_template = $("template").value;
  try {
    const reply = await (await call("/v1/template", body, own.signal)).json();
    if (isOriginal) {
      const given = reply.chat_template;
      const named = Array.isArray(given)
        ? given.find(({ name }) => name === "default") ?? given[0] : null;
      $("template").value = named?.template ?? given ?? "";
      original = model;
    }
    showTemplate(reply, messages);
  } catch (error) {
    if (error.name !== "AbortError") showTemplate({ findings: [], render_error: error }, messages);
  }
}

function showTemplate({ findings, prompt, spans, render_error: failed, polyfills_applied: applied,
  diagnostics }, messages) {
  const of = (kind) => findings.filter(({ severity }) => severity === kind).length;
  $("verdict").textContent = [[of("error"), "error"], [of("warning"), "warning"],
    [of("info"), "remark"]].map(([count, noun]) => counted(count, noun)).join(", ");
  $("template").setAttribute("aria-invalid", String(of("error") > 0));
  const marked = findings.filter(({ severity }) => severity !== "info");
  numberLines(new Set(marked.map(({ line }) => line)));
  $("findings").replaceChildren(...findings.map(({ line, severity, message, code }) => {
    const go = line ? [button(`line ${line}`, () => goToLine(line))] : [];
    const kind = element("span", { className: severity, textContent: severity + ": " });
    return element("li", {}, ...go, kind, `${message} [${code}]`);
  }));
  const bad = failed ?? findings.find(({ code }) => code === "template_error");
  $("drafted").textContent = bad ? bad.message
    : "Polyfills that ran: " + (applied?.join(", ") || "none");
  $("drafted").classList.toggle("error", Boolean(bad));
  $("drafted-notes").replaceChildren(...notes(diagnostics));
  const drafted = prompt === undefined ? [] : pieces({ prompt, spans }, messages);
  $("draft-prompt").replaceChildren(...drafted);
}

function numberLines(marked) {
  const count = $("template").value.split("\n").length;
  const numbers = Array.from({ length: count }, (_, index) => index + 1);
  $("numbers").replaceChildren(...numbers.flatMap((number) =>
    [marked.has(number) ? element("b", { textContent: `● ${number}` }) : String(number), "\n"]));
  $("numbers").scrollTop = $("template").scrollTop;
}

function goToLine(line) {
  const area = $("template"), lines = area.value.split("\n");
  const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  area.focus();
  area.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
  area.scrollTop = Math.max(0, (line - 4) * parseFloat(getComputedStyle(area).lineHeight));
}

/** Takes the template of the model, and uses it in the chat again. */
function takeOriginal() {
  original = null;
  setTrying(false);
  checkTemplate();
}

function setTrying(isTrying) {
  $("try-draft").checked = isTrying;
  $("trying").hidden = !isTrying;
}

export function startTemplate() {
  conversation.addEventListener("change", templateSoon);
  $("try-draft").addEventListener("change", () => setTrying($("try-draft").checked));
  $("end-draft").addEventListener("click", () => { setTrying(false); $("draft").focus(); });
  $("original").addEventListener("click", takeOriginal);
  $("model").addEventListener("change", () => setTrying(false));
  $("template").addEventListener("scroll", () => {
    $("numbers").scrollTop = $("template").scrollTop;
  });
}
