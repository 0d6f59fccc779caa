// The message field: its text, and text files that are attached by a button, dropped or pasted.

import { $, button, element, say } from "./dom.js";

const MAX_FILE = 1_000_000;
let files = [];

/** What is to be sent, or null if there is nothing. */
export function draft() {
  const text = $("draft").value.trim();
  return text || files.length ? { text, files } : null;
}

/** Puts a message into the field, before what was typed meanwhile. */
export function giveBack({ text, files: given = [] }) {
  $("draft").value = [text, $("draft").value].filter(Boolean).join("\n\n");
  setFiles([...given, ...files]);
  changed();
}

export function clearDraft() {
  $("draft").value = "";
  setFiles([]);
  changed();
}

function changed() {
  $("draft").dispatchEvent(new Event("input", { bubbles: true }));
}

function setFiles(given) {
  files = given;
  $("files").replaceChildren(...files.map((file) => element("li", {}, file.name,
    button("×", () => { setFiles(files.filter((other) => other !== file)); changed(); },
      { ariaLabel: `Remove ${file.name}` }))));
}

async function attach(given) {
  for (const file of given) {
    try {
      if (file.size > MAX_FILE) throw new Error(`${file.name} has more than 1 MB.`);
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      if (text.includes("\0")) throw new TypeError();
      setFiles([...files, { name: file.name, text }]);
    } catch (error) {
      const isText = !(error instanceof TypeError);
      say(isText ? error.message : `${file.name} is not a text file. Attach text files.`, true);
    }
  }
  changed();
  $("draft").focus();
}

function grow() {
  const field = $("draft");
  field.style.height = "auto";
  field.style.height = field.scrollHeight + 2 + "px";
}

export function startComposer() {
  $("draft").addEventListener("input", grow);
  $("attach").addEventListener("click", () => $("file").click());
  $("file").addEventListener("change", () => {
    attach([...$("file").files]);
    $("file").value = "";
  });
  $("draft").addEventListener("paste", (event) => {
    const pasted = [...event.clipboardData.files];
    if (!pasted.length) return;
    event.preventDefault();
    attach(pasted);
  });
  const isFiles = (event) => event.dataTransfer?.types.includes("Files");
  document.addEventListener("dragover", (event) => {
    if (!isFiles(event)) return;
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.body.classList.remove("dropping");
  });
  document.addEventListener("drop", (event) => {
    document.body.classList.remove("dropping");
    if (!isFiles(event)) return;
    event.preventDefault();
    attach([...event.dataTransfer.files]);
  });
}
