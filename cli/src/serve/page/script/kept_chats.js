// The panel "Chats": chats that this browser keeps, by name. They are in its local storage and
// nowhere else. The key of the server is never kept.

import { $, beginning, button, counted, download, element, say } from "./dom.js";
import { conversation, isUser, messagesOf } from "./conversation.js";
import { restoreSettings, settings, withSystem } from "./request.js";
import { chooseModel } from "./models.js";
import { openTurns } from "./chat.js";

const PREFIX = "llb.chat.";
const OFF = "llb.keeps_no_chats";
/** The chat of this tab, so that a reload opens it again. */
const OPEN = "llb.open";

/** A browser may refuse both. Then nothing is kept. */
const [storage, tab] = ["localStorage", "sessionStorage"].map((name) => {
  try {
    return globalThis[name];
  } catch {
    return null;
  }
});

let open = newChat();
/** The turns of the chat as it was opened. They are kept already. */
let opened = null;

function newChat() {
  return { id: Date.now().toString(36) + Math.random().toString(36).slice(2, 6), name: "" };
}

/** The kept chats, the latest first. What is not a chat is skipped. */
function keptChats() {
  const keys = Object.keys(storage ?? {}).filter((key) => key.startsWith(PREFIX));
  const chats = keys.flatMap((key) => {
    try {
      const chat = JSON.parse(storage?.getItem(key));
      return Array.isArray(chat.turns) ? [chat] : [];
    } catch {
      return [];
    }
  });
  return chats.sort((one, other) => other.time - one.time);
}

function current() {
  const first = conversation.turns.find(isUser);
  const name = open.name || beginning(first?.text || first?.files?.[0]?.name || "Chat");
  // The probabilities of tokens take much more room than the text.
  const turns = conversation.turns.map(({ tokens, ...turn }) => turn);
  const model = $("model").value;
  return { id: open.id, name, time: Date.now(), model, settings: settings(), turns };
}

function keep() {
  if (storage?.getItem(OFF)) return;
  if (conversation.turns.length) {
    store(current());
    tab?.setItem(OPEN, open.id);
  }
  showKeptChats();
}

function store(chat) {
  try {
    storage?.setItem(PREFIX + chat.id, JSON.stringify(chat));
  } catch {
    say("The browser has no room for this chat; it is not kept. Delete older chats.", true);
  }
}

function openChat(chat) {
  open = { id: chat.id, name: chat.name };
  chooseModel(chat.model);
  restoreSettings(chat.settings);
  opened = chat.turns;
  openTurns(opened);
  tab?.setItem(OPEN, chat.id);
}

function startNew() {
  open = newChat();
  tab?.removeItem(OPEN);
  openTurns();
  $("draft").focus();
}

function deleteChats(chats) {
  for (const { id } of chats) storage?.removeItem(PREFIX + id);
  if (chats.some(({ id }) => id === open.id)) startNew();
  showKeptChats();
  const undo = () => {
    for (const chat of chats) store(chat);
    showKeptChats();
  };
  $("no-chats").replaceChildren(`Deleted ${counted(chats.length, "chat")}. `, button("Undo", undo));
}

function rename(chat, item) {
  const field = element("input", { value: chat.name, ariaLabel: "Name of the chat" });
  const save = element("button", { textContent: "Save" });
  const form = element("form", { className: "rename" }, field, save);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const name = field.value.trim() || chat.name;
    if (chat.id === open.id) open.name = name;
    store({ ...chat, name });
    showKeptChats();
  });
  item.replaceChildren(form);
  field.select();
}

function showKeptChats() {
  const chats = keptChats();
  $("chats").replaceChildren(...chats.map((chat) => {
    const item = element("li");
    const name = button(chat.name, () => openChat(chat), { className: "chat-name" });
    const time = new Date(chat.time).toLocaleString();
    if (chat.id === open.id) name.setAttribute("aria-current", "true");
    item.append(name, element("time", { className: "muted", textContent: time }),
      button("Rename", () => rename(chat, item), { ariaLabel: `Rename ${chat.name}` }),
      button("Delete", () => deleteChats([chat]), { ariaLabel: `Delete ${chat.name}` }));
    return item;
  }));
  const isOff = Boolean(storage?.getItem(OFF));
  $("no-chats").textContent = isOff ? "Chats are not kept."
    : chats.length ? "" : "Chats appear here when they have a message.";
  $("clear-chats").disabled = !chats.length;
  for (const id of ["export-json", "export-markdown"]) $(id).disabled = !conversation.turns.length;
}

function exportJson() {
  const { name, model, settings: kept, turns } = current();
  const chat = { name, model, settings: kept, messages: withSystem(messagesOf(turns)) };
  download(fileName(name, "json"), "application/json", JSON.stringify(chat, null, 2) + "\n");
}

function exportMarkdown() {
  const { name, turns } = current();
  const titles = { system: "System", user: "You", assistant: "Model", tool: "Tool" };
  const parts = withSystem(messagesOf(turns)).map(({ role, content, tool_calls: calls }) => {
    const called = (calls ?? []).map(({ function: { name, arguments: given } }) =>
      `Calls \`${name}\`:\n\n\`\`\`json\n${given}\n\`\`\``);
    const parts = Array.isArray(content) ? content : [{ text: content }];
    const shown = parts.map(({ text, image_url: image, input_audio: sound }) =>
      image ? `![](${image.url})` : sound ? "(a sound)" : text);
    return [`## ${titles[role]}`, ...shown, ...called].filter(Boolean).join("\n\n");
  });
  download(fileName(name, "md"), "text/markdown", [`# ${name}`, ...parts].join("\n\n") + "\n");
}

function fileName(name, extension) {
  return (name.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "") || "chat") + "." + extension;
}

export function startKeptChats() {
  conversation.addEventListener("change", () => {
    if (conversation.turns !== opened) keep();
    else showKeptChats();
  });
  $("new").addEventListener("click", startNew);
  $("clear-chats").addEventListener("click", () => deleteChats(keptChats()));
  $("export-json").addEventListener("click", exportJson);
  $("export-markdown").addEventListener("click", exportMarkdown);
  $("keep-chats").checked = !storage?.getItem(OFF);
  $("keep-chats").addEventListener("change", () => {
    if ($("keep-chats").checked) storage?.removeItem(OFF);
    else storage?.setItem(OFF, "true");
    keep();
    showKeptChats();
  });
  const last = keptChats().find(({ id }) => id === tab?.getItem(OPEN));
  if (last) openChat(last);
  showKeptChats();
}
