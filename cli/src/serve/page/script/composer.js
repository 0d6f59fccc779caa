// The message field: its text, and files that are attached by a button, dropped or pasted: text, and
// pictures and sounds if the model takes them.

import { $, button, element, say } from "./dom.js";
import { isSound } from "./conversation.js";
import { takes } from "./models.js";

const MAX_FILE = 1_000_000;
const MAX_MEDIA = 8_000_000;
/** What files of these types are called. */
const MEDIA = { image: "pictures", audio: "sounds" };
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
  $("files").replaceChildren(...files.map((file) => element("li", {},
    ...(file.url && !isSound(file) ? [element("img", { src: file.url, alt: "" })] : []), file.name,
    button("×", () => { setFiles(files.filter((other) => other !== file)); changed(); },
      { ariaLabel: `Remove ${file.name}` }))));
}

async function readText(file) {
  if (file.size > MAX_FILE) throw new Error(`${file.name} has more than 1 MB.`);
  const bytes = await file.arrayBuffer();
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    if (!text.includes("\0")) return { name: file.name, text };
  } catch { /* It is not text. */ }
  const media = MEDIA[kindOf(file)];
  const reason = media ? `The model takes no ${media}: the server has no projector of them for it.`
    : "Attach text files.";
  throw new Error(`${file.name} is not a text file. ${reason}`);
}

/** "image" of a file of the type image/png. */
function kindOf(file) {
  return file.type.split("/")[0];
}

/** A picture or a sound as a data URL, which the server decodes. */
async function readMedia(file) {
  if (file.size > MAX_MEDIA) throw new Error(`${file.name} has more than 8 MB.`);
  const url = await new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(file);
  });
  return { name: file.name, url };
}

async function attach(given) {
  for (const file of given) {
    try {
      const kind = kindOf(file);
      const attached = await (MEDIA[kind] && takes(kind) ? readMedia(file) : readText(file));
      setFiles([...files, attached]);
    } catch (error) {
      say(error.message, true);
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
