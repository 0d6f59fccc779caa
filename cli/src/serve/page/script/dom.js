// Elements of the page, and small things that every other module needs.

export const $ = (id) => document.getElementById(id);

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** A button that does not submit its form. */
export function button(text, onclick, properties = {}) {
  return element("button", { type: "button", textContent: text, onclick, ...properties });
}

/** "1 token", "2 tokens". */
export function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

/** The beginning of a text, on one line. */
export function beginning(text, length = 40) {
  const line = text.trim().replace(/\s+/g, " ");
  return line.length > length ? line.slice(0, length).trimEnd() + "…" : line;
}

/** Copies text, and says so on the button for a moment. */
export async function copy(text, pressed) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Browsers permit the clipboard only to pages of https and of this machine.
    const area = element("textarea", { value: text, className: "hidden" });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    pressed.focus();
  }
  pressed.textContent = "Copied";
  setTimeout(() => { pressed.textContent = "Copy"; }, 1500);
}

/** Saves text as a file of the browser. */
export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** The line below the message field, with what can be done: pairs of a text and a function. */
export function say(text, isError = false, actions = []) {
  $("status").className = isError ? "error" : "muted";
  $("status").replaceChildren(text, ...actions.map(([name, act]) => button(name, act)));
}
