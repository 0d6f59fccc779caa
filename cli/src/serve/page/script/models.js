// The models of the server, and the panel "Capabilities": what the chosen one is and can do.

import { $, element, say } from "./dom.js";
import { call } from "./server.js";

let models = [];
/** The model of a kept chat that was opened before the models were known. */
let wanted = "";

/** Asks the server for its models. */
export async function loadModels() {
  try {
    const props = await (await call("/props")).json();
    const chosen = wanted || $("model").value;
    wanted = "";
    models = props.models.filter(({ embeddings }) => !embeddings);
    $("model").replaceChildren(...models.map(({ id }) =>
      element("option", { value: id, textContent: id })));
    chooseModel(chosen);
    const none = "This server has no chat model. Start it with one: llb serve MODEL";
    say(models.length ? props.version : none, !models.length);
  } catch (error) {
    models = [];
    say(error.message, true, error.isGone ? [["Try again", loadModels]] : []);
  }
  $("model").dispatchEvent(new Event("change", { bubbles: true }));
}

export function chooseModel(id) {
  wanted = models.length ? "" : id;
  if (models.some((model) => model.id === id)) $("model").value = id;
}

function chosenModel() {
  return models.find(({ id }) => id === $("model").value);
}

/** Whether the chosen model takes this: "image" or "audio". */
export function takes(modality) {
  return Boolean(chosenModel()?.input_modalities?.includes(modality));
}

function showModel() {
  const model = chosenModel();
  if (!model) return $("panel-model").replaceChildren();
  const format = model.output_format ?? {};
  const facts = [["architecture", model.architecture], ["size", sizeOf(model)],
    ["quantization", model.quantization], ["context", `${model.n_ctx.toLocaleString("en")} tokens`],
    ["input", model.input_modalities?.join(", ")], ["tools", model.tool_support], ["output format", format.family],
    ["reasoning", format.reasoning]];
  const evidence = Object.entries(model.evidence ?? {});
  const findings = model.findings ?? [];
  $("panel-model").replaceChildren(
    table("What the model is", ["Property", "Value"], facts.filter(([, value]) => value)),
    table("What the template can do, with the evidence", ["Capability", "Status", "Evidence"],
      evidence.map(([name, { status, because }]) => [name, { status }, because])),
    ...(findings.length ? [table("What llb found in the template", ["Finding", "Severity", "Text"],
      findings.map(({ code, severity, message, line }) =>
        [code, { status: severity }, message + (line ? ` (line ${line})` : "")]))] : []));
}

/** "494 M parameters, 491 MB". */
function sizeOf({ n_params: parameters, file_size: bytes }) {
  const short = (count, units) => {
    const step = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(1, count)) / 3));
    const number = count / 1000 ** step;
    return `${number.toFixed(number < 10 && step ? 1 : 0)} ${units[step]}`;
  };
  return [parameters && short(parameters, ["", "K", "M", "B"]) + " parameters",
    bytes && short(bytes, ["bytes", "KB", "MB", "GB"])].filter(Boolean).join(", ");
}

function table(caption, head, rows) {
  const cell = (value, index) => {
    if (index === 0) {
      const parts = value.split(/(?<=_)/).flatMap((part) => [element("wbr"), part]);
      return element("th", { scope: "row" }, ...parts);
    }
    if (typeof value === "object") {
      return element("td", { className: "status" },
        element("span", { className: value.status, textContent: value.status }));
    }
    return element("td", { textContent: value });
  };
  return element("table", {}, element("caption", { textContent: caption }),
    element("thead", {}, element("tr", {}, ...head.map((text) =>
      element("th", { scope: "col", textContent: text })))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map(cell)))));
}

export function startModels() {
  $("model").addEventListener("change", showModel);
  $("key").addEventListener("change", loadModels);
}
