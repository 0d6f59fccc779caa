// What the user does in the chat: send, stop, retry, edit, copy, delete, give results. A request
// that fails changes nothing: its turn goes, and its text returns to the message field.

import { $, beginning, button, copy, element, say } from "./dom.js";
import { conversation, isUser, messagesOf, openCalls, textOf } from "./conversation.js";
import { requestOf } from "./request.js";
import { isNearEnd, scrollToEnd, setGiven, showTurns } from "./turns.js";
import { Reply } from "./reply.js";
import { clearDraft, draft, giveBack } from "./composer.js";

/** The request that runs. */
let running = null;

function setRunning(own) {
  running = own;
  document.body.classList.toggle("running", Boolean(own));
  $("send").disabled = Boolean(own);
  $("stop").disabled = !own;
  // A screen reader reads the reply when it is whole.
  $("log").setAttribute("aria-busy", String(Boolean(own)));
}

function stop() {
  running?.abort();
}

/** Opens other turns, or none. */
export function openTurns(turns = []) {
  stop();
  setRunning(null);
  conversation.replace(turns);
  scrollToEnd();
  say("");
}

/** Asks for the next reply. If nothing comes, the turns are those of `before` again, and `message`
 * returns to its field. `again` makes the same attempt. */
async function generate({ before, message, again, failed }) {
  const own = new AbortController();
  setRunning(own);
  say("Generating …");
  let reply = null, problem = null;
  try {
    const body = requestOf(messagesOf(conversation.turns));
    reply = new Reply();
    await reply.read(body, own.signal);
  } catch (error) {
    problem = error;
  }
  // Another chat was opened.
  if (running !== own) return;
  setRunning(null);
  const isNear = isNearEnd();
  const turn = reply?.turn(problem);
  if (!turn) {
    failed?.();
    conversation.replace(before);
    if (message) giveBack(message);
    $("draft").focus();
    return showFailure(problem, { message, again });
  }
  const isAtEnd = document.activeElement === $("draft") || document.activeElement === document.body;
  conversation.add(turn);
  if (isNear) scrollToEnd();
  say(problem?.isGone ? problem.message : "", Boolean(problem?.isGone));
  if (openCalls(turn).length && isAtEnd) resultField(turn).focus();
}

function showFailure(problem, { message, again }) {
  if (problem.name === "AbortError") return say("Stopped before the reply began.");
  if (problem.code !== "context_length_exceeded") {
    return say(problem.message, true, problem.isGone ? [["Try again", again]] : []);
  }
  // What is being asked is not offered.
  const exchanges = conversation.exchanges().slice(0, message ? undefined : -1);
  const leaveOut = (count) => () => {
    conversation.replace(conversation.without(0, count));
    again();
  };
  const first = beginning(conversation.turns[0]?.text ?? "", 24);
  const offers = exchanges.slice(0, 1).map(([, count]) =>
    [`Leave out “${first}” and try again`, leaveOut(count)]);
  if (exchanges.length > 1) {
    const [start, count] = exchanges.at(-1);
    offers.push(["Leave out all earlier messages and try again", leaveOut(start + count)]);
  }
  say(problem.message, true, offers);
}

function send() {
  const message = draft();
  if (running || !message) return;
  const last = conversation.turns.at(-1);
  if (openCalls(last).length) {
    say("Give the results of the tool calls first.", true);
    return resultField(last).focus();
  }
  const before = conversation.turns;
  clearDraft();
  conversation.add({ role: "user", ...message });
  scrollToEnd();
  generate({ before, message, again: send });
}

/** The reply to a turn of the user, or another reply in place of one. */
function retry(turn) {
  const before = conversation.turns;
  conversation.replace(before.slice(0, before.indexOf(turn) + (isUser(turn) ? 1 : 0)));
  generate({ before, again: () => retry(turn) });
}

/** Deletes a reply, or a question with its replies. */
function deleteTurn(turn) {
  const before = conversation.turns, index = before.indexOf(turn);
  const [, count] = conversation.exchanges().find(([start]) => start === index) ?? [];
  conversation.replace(conversation.without(index, isUser(turn) ? count : 1));
  say("Deleted.", false, [["Undo", () => { conversation.replace(before); say(""); }]]);
  $("draft").focus();
}

/** Replaces the text of a turn by a field. An edited question is asked again. */
function edit(turn, article) {
  const text = isUser(turn) ? turn.text : turn.message.content ?? "";
  const area = element("textarea", { value: text, rows: Math.min(20, text.split("\n").length + 1),
    ariaLabel: isUser(turn) ? "Edited message" : "Edited reply" });
  const form = element("form", { className: "edit" }, area, element("div", { className: "actions" },
    element("button", { className: "main", textContent: isUser(turn) ? "Send again" : "Save" }),
    button("Cancel", () => close())));
  const close = () => {
    form.remove();
    article.classList.remove("editing");
  };
  area.addEventListener("keydown", ({ key }) => { if (key === "Escape") close(); });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (running) return;
    close();
    const before = conversation.turns, index = before.indexOf(turn);
    if (isUser(turn)) {
      const edited = { ...turn, text: area.value.trim() };
      conversation.replace([...before.slice(0, index), edited]);
      return generate({ before, message: edited, again: send });
    }
    conversation.replace(before.with(index, { ...turn, tokens: undefined, facts: "Edited.",
      message: { ...turn.message, content: area.value } }));
  });
  article.classList.add("editing");
  article.querySelector("h2").after(form);
  area.focus();
  form.scrollIntoView({ block: "nearest" });
}

/** The field of a turn's first call without a result. */
function resultField(turn) {
  const article = $("log").children[conversation.turns.indexOf(turn)];
  return article.querySelector(`[data-place="${openCalls(turn)[0]}"] textarea`);
}

function giveResult(form) {
  const turn = turnOf(form), { place } = form.dataset, before = conversation.turns;
  if (running) return;
  turn.results[place] = form.querySelector("textarea").value;
  setGiven(form, true);
  const [next] = openCalls(turn);
  if (next !== undefined) return resultField(turn).focus();
  $("draft").focus();
  conversation.replace([...before]);
  const failed = () => { turn.results[place] = null; setGiven(form, false); };
  generate({ before, failed, again: () => giveResult(form) });
}

function turnOf(child) {
  return conversation.turns[child.closest("[data-index]")?.dataset.index];
}

const ACTS = {
  copy: (turn, article, pressed) =>
    copy(isUser(turn) ? textOf(turn) : turn.message.content ?? "", pressed),
  edit: (turn, article) => edit(turn, article),
  retry,
  delete: deleteTurn,
};

export function startChat() {
  conversation.addEventListener("change", showTurns);
  $("composer").addEventListener("submit", (event) => { event.preventDefault(); send(); });
  $("draft").addEventListener("keydown", (event) => {
    // On a phone, the key starts a line.
    const isPhone = matchMedia("(pointer: coarse)").matches;
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || isPhone) return;
    event.preventDefault();
    send();
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") stop(); });
  $("stop").addEventListener("click", () => { stop(); $("draft").focus(); });
  $("log").addEventListener("click", ({ target }) => {
    const act = ACTS[target.dataset?.act], turn = act && turnOf(target);
    if (turn && (!running || act === ACTS.copy)) act(turn, target.closest("article"), target);
  });
  $("log").addEventListener("submit", (event) => {
    if (!event.target.matches(".result")) return;
    event.preventDefault();
    giveResult(event.target);
  });
}
