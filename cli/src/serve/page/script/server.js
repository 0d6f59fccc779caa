// Requests to the server, and the events of its streams.

import { $ } from "./dom.js";

/** An error that the server sent, or the lack of an answer (`isGone`). */
export class ServerError extends Error {
  constructor(message, facts = {}) {
    super(message);
    Object.assign(this, facts);
  }
}

const GONE = "The server does not answer. Is llb serve still running?";

export async function call(path, body, signal) {
  const headers = {};
  if ($("key").value) headers.authorization = "Bearer " + $("key").value;
  if (body) headers["content-type"] = "application/json";
  const method = body ? "POST" : "GET";
  const sent = { method, headers, body: body && JSON.stringify(body), signal };
  const response = await fetch(path, sent).catch((error) => {
    throw error.name === "AbortError" ? error : new ServerError(GONE, { isGone: true });
  });
  if (response.ok) return response;
  const reply = await response.json().catch(() => null);
  const message = reply?.error?.message ?? `The server answered with status ${response.status}.`;
  if (response.status === 401) askForKey();
  throw new ServerError(message, { status: response.status, code: reply?.error?.code });
}

function askForKey() {
  if ($("key-field").hidden) {
    $("key-field").hidden = false;
    $("key").focus();
  }
}

/** The events of a stream. A comment or half an event gives nothing. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch((error) => {
      throw error.name === "AbortError" ? error : new ServerError(GONE, { isGone: true });
    });
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const lines = block.split("\n").filter((line) => line.startsWith("data:"));
      const data = lines.map((line) => line.slice(5).trim()).join("\n");
      if (data && data !== "[DONE]") yield JSON.parse(data);
    }
  }
}
