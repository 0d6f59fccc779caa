// Sends requests with the official openai package for Node, and prints the results as one JSON
// object. Usage: node client.cjs URL

const OpenAI = require("openai");

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "Hello" }];
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ type: "function", function: { name: "get_weather", parameters } }];
const came = {};

async function texts() {
  const reply = await client.chat.completions.create({ model: "text", messages });
  came.text = reply.choices[0].message.content;
  came.tokens = reply.usage.completion_tokens;

  let text = "";
  const chunks = await client.chat.completions.create({ model: "text", messages, stream: true });
  for await (const chunk of chunks) text += chunk.choices[0]?.delta.content ?? "";
  came.stream = text;

  // The helper puts the chunks together and has an event for each part.
  let parts = "";
  const stream = client.chat.completions.stream({ model: "text", messages });
  stream.on("content", (part) => (parts += part));
  came.helper = [await stream.finalContent(), parts];

  const thought = await client.chat.completions.create({ model: "reasoning", messages });
  came.thinking = thought.choices[0].message.reasoning_content;

  const probable = await client.chat.completions.create({
    model: "text", messages, max_tokens: 2, logprobs: true, top_logprobs: 2,
  });
  came.logprobs = probable.choices[0].logprobs.content.map((each) => each.top_logprobs.length);
}

async function calls() {
  const reply = await client.chat.completions.create({ model: "tool_call", messages, tools });
  const call = reply.choices[0].message.tool_calls[0].function;
  came.call = [call.name, JSON.parse(call.arguments)];

  // Runs the function and sends its result, until it has made three requests.
  const cities = [];
  const runner = client.chat.completions.runTools(
    {
      model: "tool_call",
      messages,
      tools: [
        {
          type: "function",
          function: {
            name: "get_weather",
            parse: JSON.parse,
            function: ({ city }) => {
              cities.push(city);
              return "sunny";
            },
            parameters,
          },
        },
      ],
    },
    { maxChatCompletions: 3 },
  );
  await runner.done();
  came.run = cities;
}

async function schemas() {
  const schema = {
    type: "object", required: ["is_city"], additionalProperties: false,
    properties: { is_city: { type: "boolean" } },
  };
  const reply = await client.chat.completions.parse({
    model: "text", messages,
    response_format: { type: "json_schema", json_schema: { name: "place", schema, strict: true } },
  });
  came.parsed = Object.keys(JSON.parse(reply.choices[0].message.content));
}

async function responses() {
  const reply = await client.responses.create({ model: "text", input: "Hello" });
  came.response = reply.output_text;

  const kinds = [];
  const stream = client.responses.stream({ model: "text", input: "Hello" });
  for await (const event of stream) kinds.push(event.type);
  came.response_stream = (await stream.finalResponse()).output_text;
  came.response_events = [...new Set(kinds)];

  const next = await client.responses.create({
    model: "text", input: "More", previous_response_id: reply.id,
  });
  came.continued = next.previous_response_id === reply.id;
}

async function others() {
  const page = await client.models.list();
  came.models = page.data.map((model) => model.id);
  const vectors = await client.embeddings.create({ model: "embedding", input: ["a", "b"] });
  came.vectors = vectors.data.map((each) => each.embedding.length);

  const failures = {
    unknown_model: client.chat.completions.create({ model: "none", messages }),
    wrong_value: client.chat.completions.create({ model: "text", messages, temperature: "hot" }),
  };
  for (const [name, failure] of Object.entries(failures)) {
    await failure.catch((error) => (came[name] = [error.constructor.name, error.status, error.param]));
  }
}

async function main() {
  for (const part of [texts, calls, schemas, responses, others]) await part();
  console.log(JSON.stringify(came));
}

main();
