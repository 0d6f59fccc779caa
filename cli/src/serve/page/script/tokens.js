// The tokens of a reply with their probabilities, by a pointer or by the arrow keys.

import { $, element } from "./dom.js";

const alternatives = new WeakMap();

/** Adds text whose tokens are known. */
export function addTokens(root, text, tokens) {
  if (!root.hasAttribute("tabindex")) makeTokens(root);
  // The tokens of markup, or those of a text that was held back, may not fit the text.
  const fits = tokens.map(({ token }) => token).join("") === text;
  const parts = fits ? tokens.map((token) => [token.token, [token]]) : [[text, tokens]];
  for (const [part, of] of parts) if (part) root.append(tokenSpan(part, of));
}

function tokenSpan(text, tokens) {
  const least = Math.min(...tokens.map(({ logprob }) => Math.exp(logprob)));
  const kind = least > .9 ? "" : least > .5 ? "likely" : least > .1 ? "open" : "rare";
  const span = element("span", { className: `token ${kind}`, textContent: text });
  alternatives.set(span, tokens);
  return span;
}

function makeTokens(root) {
  const label = "Reply; the arrow keys go through its tokens";
  Object.assign(root, { tabIndex: 0, role: "group", ariaLabel: label });
  root.setAttribute("aria-describedby", "token");
  root.addEventListener("pointerover", ({ target }) => showToken(target));
  root.addEventListener("pointerleave", hideToken);
  root.addEventListener("blur", hideToken);
  root.addEventListener("keydown", (event) => {
    const spans = [...root.querySelectorAll(".token")];
    const now = spans.findIndex((span) => span.classList.contains("current"));
    const last = spans.length - 1;
    const to = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    showToken(spans[Math.max(0, Math.min(to, last))]);
  });
}

function showToken(span) {
  const tokens = alternatives.get(span);
  if (!tokens) return;
  hideToken();
  span.classList.add("current");
  const rows = tokens.length > 1 ? tokens : [tokens[0],
    ...(tokens[0].top_logprobs ?? []).filter(({ token }) => token !== tokens[0].token)];
  $("token").replaceChildren(element("table", { role: "presentation" }, element("tbody", {},
    ...rows.slice(0, 8).map(({ token, logprob }) => element("tr", {},
      element("td", { textContent: JSON.stringify(token) }),
      element("td", { textContent: (100 * Math.exp(logprob)).toFixed(1) + " %" }))))));
  $("token").hidden = false;
  const place = span.getBoundingClientRect(), size = $("token").getBoundingClientRect();
  const left = Math.max(4, Math.min(place.left, innerWidth - size.width - 4));
  const isBelow = place.bottom + 4 + size.height < innerHeight;
  $("token").style.left = left + "px";
  $("token").style.top = (isBelow ? place.bottom + 4 : place.top - size.height - 4) + "px";
}

function hideToken() {
  document.querySelector(".token.current")?.classList.remove("current");
  $("token").hidden = true;
}
