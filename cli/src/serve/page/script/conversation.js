// The conversation as it is kept. A turn is plain JSON:
//   the user's:  { role: "user", text, files: [{ name, text }, or { name, url } of a picture or
//                 a sound] }
//   the model's: { role: "assistant", message, results: [text or null of each call], notes, facts }

/** Tells "change" when turns were added, changed or taken away. */
class Conversation extends EventTarget {
  turns = [];
  replace(turns) {
    this.turns = turns;
    this.dispatchEvent(new Event("change"));
  }
  add(turn) {
    this.replace([...this.turns, turn]);
  }
  /** The first turn of each question with its replies, and the number of turns. */
  exchanges() {
    const places = [...this.turns.keys()];
    const starts = places.filter((index) => index === 0 || isUser(this.turns[index]));
    return starts.map((start, place) => [start, (starts[place + 1] ?? this.turns.length) - start]);
  }
  /** The turns without `count` of them. */
  without(start, count) {
    return this.turns.toSpliced(start, count);
  }
}

export const conversation = new Conversation();

export const isUser = (turn) => turn?.role === "user";

/** The calls of a turn that have no result yet, by their place. */
export function openCalls(turn) {
  const calls = turn?.message?.tool_calls ?? [];
  return [...calls.keys()].filter((index) => turn.results?.[index] == null);
}

/** Messages as they are sent. */
export function messagesOf(turns) {
  return turns.flatMap((turn) => {
    if (isUser(turn)) return [{ role: "user", content: contentOf(turn) }];
    const calls = turn.message.tool_calls ?? [];
    const results = calls.flatMap(({ id }, index) => turn.results?.[index] == null ? []
      : [{ role: "tool", tool_call_id: id, content: turn.results[index] }]);
    return [turn.message, ...results];
  });
}

/** Whether an attached file is a sound. */
export const isSound = ({ url }) => Boolean(url?.startsWith("data:audio/"));

/** What the user sends: text, or parts if there are pictures or sounds, which are before the text. */
export function contentOf(message) {
  const media = (message.files ?? []).filter(({ url }) => url);
  const text = textOf(message);
  if (!media.length) return text;
  return [...media.map(partOf), ...(text ? [{ type: "text", text }] : [])];
}

function partOf(file) {
  if (!isSound(file)) return { type: "image_url", image_url: { url: file.url } };
  const data = file.url.slice(file.url.indexOf(",") + 1);
  return { type: "input_audio", input_audio: { data, format: file.name.split(".").pop() } };
}

/** The text of the user, and after it each text file with its name. */
export function textOf({ text, files = [] }) {
  const parts = files.filter(({ url }) => !url).map((file) => {
    const ticks = [...file.text.matchAll(/`+/g)].map(([run]) => run.length);
    const fence = "`".repeat(Math.max(3, ...ticks.map((length) => length + 1)));
    return `${file.name}:\n${fence}\n${file.text.replace(/\n$/, "")}\n${fence}`;
  });
  return [text, ...parts].filter(Boolean).join("\n\n");
}
