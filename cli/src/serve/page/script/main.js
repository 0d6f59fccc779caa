// Starts the page: its panels, and what happens when something is typed.

import { $ } from "./dom.js";
import { startRequest } from "./request.js";
import { startComposer } from "./composer.js";
import { startChat } from "./chat.js";
import { explainSoon, startPrompt } from "./prompt.js";
import { checkTemplate, startTemplate, templateSoon } from "./template.js";
import { sampleLoad, startLoad } from "./load.js";
import { loadModels, startModels } from "./models.js";
import { startKeptChats } from "./kept_chats.js";

const tabs = [...document.querySelectorAll("[role=tab]")];

function choose(chosen) {
  for (const tab of tabs) {
    tab.setAttribute("aria-selected", String(tab === chosen));
    tab.tabIndex = tab === chosen ? 0 : -1;
    $(tab.getAttribute("aria-controls")).hidden = tab !== chosen;
  }
  document.body.classList.toggle("editing-template", chosen === $("tab-template"));
  if (chosen === $("tab-template")) checkTemplate();
  if (chosen === $("tab-load")) sampleLoad();
}

function startPanels() {
  for (const [index, tab] of tabs.entries()) {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: -1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      const next = tabs.at(to % tabs.length);
      choose(next);
      next.focus();
    });
  }
  // On narrow screens the panels are behind a button.
  $("panels").addEventListener("click", () => {
    const isOpen = document.body.classList.toggle("panels-open");
    $("panels").setAttribute("aria-expanded", String(isOpen));
    $("panels").textContent = isOpen ? "Chat" : "Panels";
  });
}

startRequest();
startPanels();
startComposer();
startChat();
startPrompt();
startTemplate();
startLoad();
startModels();
startKeptChats();
for (const kind of ["input", "change"]) {
  document.addEventListener(kind, ({ target }) => {
    if (target === $("key")) return;
    templateSoon();
    explainSoon();
  });
}
loadModels();
