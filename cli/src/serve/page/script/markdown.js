// Markdown of replies, as elements. marked reads it, and DOMPurify admits only elements and
// attributes of the lists below. HTML in a reply is shown as text. Nothing is loaded: an image is a
// link to it.

import { codeBlock, setCode } from "./code.js";
import { element } from "./dom.js";

const PERMITTED = {
  RETURN_DOM_FRAGMENT: true,
  ALLOWED_TAGS: ["a", "b", "blockquote", "br", "code", "del", "em", "h3", "hr", "li", "ol", "p",
    "pre", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"],
  ALLOWED_ATTR: ["align", "class", "href", "start", "title"],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
};

function escaped(text) {
  return text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
}

const reader = new globalThis.marked.Marked({
  gfm: true,
  renderer: {
    html({ text }) { return /^<br *\/?>$/i.test(text.trim()) ? "<br>" : escaped(text); },
    image({ href, text }) { return `<a href="${escaped(href)}">${escaped(text || "image")}</a>`; },
    checkbox({ checked }) { return checked ? "☑ " : "☐ "; },
    // The headings of a reply are below that of its turn.
    heading({ tokens, depth }) {
      return `<h3 class="depth-${depth}">${this.parser.parseInline(tokens)}</h3>`;
    },
  },
});

function render(token) {
  const made = globalThis.DOMPurify.sanitize(reader.parser([token]), PERMITTED);
  for (const pre of made.querySelectorAll("pre")) {
    const code = pre.querySelector("code");
    const language = /language-(\S+)/.exec(code?.className ?? "")?.[1] ?? "";
    pre.replaceWith(codeBlock(pre.textContent.replace(/\n$/, ""), language.toLowerCase()));
  }
  for (const link of made.querySelectorAll("a[href]")) {
    Object.assign(link, { target: "_blank", rel: "noopener noreferrer" });
  }
  for (const table of made.querySelectorAll("table")) {
    const scroll = element("div", { className: "scroll", tabIndex: 0, role: "group" });
    scroll.ariaLabel = "Table";
    table.replaceWith(scroll);
    scroll.append(table);
  }
  return element("div", { className: "block" }, made);
}

/** Shows a text that grows. Only blocks that changed are made again, so nothing flickers. */
export class Markdown {
  constructor(root) {
    this.root = root;
    this.tokens = [];
  }
  set(text) {
    const tokens = reader.lexer(text).filter(({ type }) => type !== "space" && type !== "def");
    for (const [index, token] of tokens.entries()) {
      const before = this.tokens[index], block = this.root.children[index];
      if (before?.raw === token.raw) continue;
      if (!before) this.root.append(render(token));
      else if (isSameCode(before, token)) setCode(block.firstElementChild, token.text);
      else block.replaceWith(render(token));
    }
    while (this.root.children.length > tokens.length) this.root.lastElementChild.remove();
    this.tokens = tokens;
  }
}

function isSameCode(before, token) {
  return before.type === "code" && token.type === "code" && before.lang === token.lang;
}
