// @huggingface/jinja as a peer of benches/template.rs. peer.py describes requests and replies. The
// first argument is the folder with node_modules.

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const folder = process.argv[2];
const { Template } = createRequire(`${folder}/`)("@huggingface/jinja");
const { version } = JSON.parse(readFileSync(`${folder}/node_modules/@huggingface/jinja/package.json`, "utf8"));

// The clock of strftime_now. Both sides render the same date.
let now = 0;
globalThis.Date = class extends Date {
  constructor(...given) {
    super(...(given.length ? given : [now]));
  }
};

const seconds = (start) => Number(process.hrtime.bigint() - start) / 1e9;

let template, special;
const requests = {
  compile(request) {
    special = { bos_token: request.bos_token, eos_token: request.eos_token };
    now = new Date(request.now).getTime();
    const start = process.hrtime.bigint();
    template = new Template(request.template);
    return { seconds: seconds(start) };
  },
  render({ conversation, times }) {
    let text;
    const start = process.hrtime.bigint();
    for (let i = 0; i < times; i++) {
      const context = JSON.parse(conversation);
      text = template.render({
        messages: context.messages,
        tools: context.tools ?? null,
        documents: context.documents ?? null,
        add_generation_prompt: context.add_generation_prompt,
        ...special,
        ...context.kwargs,
      });
    }
    return { seconds: seconds(start) / times, text };
  },
  version: () => ({ version: `@huggingface/jinja ${version}, Node ${process.versions.node}` }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  let reply;
  try {
    reply = requests[request.do](request);
  } catch (error) {
    reply = { error: String(error) };
  }
  process.stdout.write(`${JSON.stringify(reply)}\n`);
}
