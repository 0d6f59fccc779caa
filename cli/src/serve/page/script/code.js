// Code in replies: a block with a button that copies it, and simple colours for comments, texts,
// numbers and keywords. The words are those of the common languages together.

import { button, copy, element } from "./dom.js";

const HASH = "bash sh shell zsh python py ruby rb yaml yml toml perl r make makefile dockerfile";
const COMMENTS = new Map([
  ...HASH.split(" ").map((language) => [language, "#.*"]),
  ...["sql", "lua", "haskell", "hs"].map((language) => [language, "--.*"]),
  ...["html", "xml", "svg"].map((language) => [language, "<!--[^]*?(?:-->|$)"]),
  ...["text", "txt", "plaintext", "markdown", "md"].map((language) => [language, null]),
]);
const SLASHES = "\\/\\/.*|\\/\\*[^]*?(?:\\*\\/|$)";
const TEXTS = [/"""[^]*?(?:"""|$)/, /"(?:\\.|[^"\\\n])*"/, /'(?:\\.|[^'\\\n])*'/, /`[^`]*`/]
  .map(({ source }) => source).join("|");
const KEYWORDS = new Set(`abstract and as assert async await bool break case catch char class const
  continue def default defer del do done double elif else enum esac except export extends extern
  False false fi final finally float fn for from func function global go if impl implements import
  in include int interface is lambda let long loop match mod mut namespace new nil None not null
  or package pass private protected pub public raise return self static string struct super switch
  then this throw trait True true try type typedef typeof unsafe use using var void where while
  with yield SELECT FROM WHERE INSERT INTO UPDATE DELETE CREATE TABLE JOIN ON GROUP BY ORDER AND OR
  NOT NULL AS VALUES SET LIMIT`.split(/\s+/));

/** The nodes of highlighted code. */
function highlight(code, language) {
  const comment = COMMENTS.has(language) ? COMMENTS.get(language) : SLASHES;
  if (comment === null || !language) return [code];
  const parts = [`(?<comment>${comment})`, `(?<text>${TEXTS})`, "(?<number>\\b\\d[\\w.]*)",
    "(?<word>[A-Za-z_]\\w*)"];
  const nodes = [];
  let end = 0;
  for (const found of code.matchAll(new RegExp(parts.join("|"), "g"))) {
    const [kind] = Object.entries(found.groups).find(([, part]) => part !== undefined);
    if (kind === "word" && !KEYWORDS.has(found[0])) continue;
    nodes.push(code.slice(end, found.index),
      element("span", { className: "code-" + kind, textContent: found[0] }));
    end = found.index + found[0].length;
  }
  return [...nodes, code.slice(end)];
}

/** A block of code. `setCode` changes its text in place, so that it keeps where it was scrolled. */
export function codeBlock(code, language) {
  const inner = element("code");
  const press = button("Copy", () => copy(inner.textContent, press), { ariaLabel: "Copy code" });
  const head = element("div", { className: "code-head" },
    element("span", { textContent: language || "code" }), press);
  const block = element("div", { className: "code-block" }, head,
    element("pre", { tabIndex: 0 }, inner));
  block.dataset.language = language;
  setCode(block, code);
  return block;
}

export function setCode(block, code) {
  block.querySelector("code").replaceChildren(...highlight(code, block.dataset.language));
}
