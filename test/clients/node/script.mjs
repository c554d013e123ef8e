// One script of calls with OpenAI's Node.js SDK. See ../doc.go.

import OpenAI from "openai";

const { BASE_URL, API_KEY, LIMITED_KEY, MODEL, WAIT_WORDS } = process.env;
const hello = [{ role: "user", content: "Say hello." }];
const long = [{ role: "user", content: "LENGTH=400 Count to 400." }]; // fake phones take it by the word

const client = (apiKey, options = {}) => new OpenAI({ baseURL: BASE_URL, apiKey, ...options });
const usual = client(API_KEY);

function check(condition, complaint) {
  if (!condition) throw new Error(complaint);
}

// read reads a chat stream to its end: text, finish reason, chunks with usage.
async function read(stream) {
  let text = "";
  let finish = null;
  const usages = [];
  for await (const chunk of stream) {
    if (chunk.usage) usages.push(chunk);
    for (const choice of chunk.choices) {
      text += choice.delta.content ?? "";
      finish = choice.finish_reason ?? finish;
    }
  }
  return { text, finish, usages };
}

const ended = ({ text, finish }) =>
  check(text && ["stop", "length"].includes(finish), `text ${JSON.stringify(text)}, finish ${finish}`);

// refused returns the error of a call that must fail.
async function refused(call, kind) {
  try {
    await call;
  } catch (error) {
    check(error instanceof kind, `${error.constructor.name}, want ${kind.name}: ${error.message}`);
    return error;
  }
  throw new Error(`succeeded, want ${kind.name}`);
}

async function chat() {
  const answer = await usual.chat.completions.create({ model: MODEL, messages: hello, max_tokens: 16 });
  const { message, finish_reason: finish } = answer.choices[0];
  ended({ text: message.content, finish });
  check(answer.model === MODEL, `answered as ${answer.model}`);
  const { prompt_tokens: prompt, completion_tokens: completion, total_tokens: total } = answer.usage;
  check(prompt > 0 && completion > 0 && total === prompt + completion, `usage ${JSON.stringify(answer.usage)}`);
}

const steps = {
  async models() {
    const listed = [];
    for await (const model of usual.models.list()) listed.push(model.id);
    check(listed.includes(MODEL), `${MODEL} is not among ${listed}`);
    check((await usual.models.retrieve(MODEL)).id === MODEL, "retrieved another model");
  },

  chat,

  async stream() {
    const got = await read(
      await usual.chat.completions.create({ model: MODEL, messages: hello, max_tokens: 16, stream: true }),
    );
    ended(got);
    check(got.usages.length === 0, "usage that nobody asked for");
  },

  async stream_usage() {
    const got = await read(
      await usual.chat.completions.create({
        model: MODEL,
        messages: hello,
        max_tokens: 16,
        stream: true,
        stream_options: { include_usage: true },
      }),
    );
    ended(got);
    check(
      got.usages.length === 1 && got.usages[0].choices.length === 0,
      `${got.usages.length} chunks with usage, want one without choices`,
    );
    check(got.usages[0].usage.completion_tokens > 0, `usage ${JSON.stringify(got.usages[0].usage)}`);
  },

  async wait() {
    const messages = [{ role: "user", content: "word ".repeat(Number(WAIT_WORDS)) }];
    ended(await read(await usual.chat.completions.create({ model: MODEL, messages, max_tokens: 8, stream: true })));
  },

  async unauthorized() {
    const call = client("wrong-key").chat.completions.create({ model: MODEL, messages: hello });
    const error = await refused(call, OpenAI.AuthenticationError);
    check(error.code === "invalid_api_key", `code ${error.code}`);
    check(error.requestID, "no request id");
  },

  async unknown_model() {
    const call = usual.chat.completions.create({ model: "no-such-model", messages: hello });
    const error = await refused(call, OpenAI.NotFoundError);
    check(error.code === "model_not_found", `code ${error.code}`);
  },

  async rate_limit() {
    const request = { model: MODEL, messages: hello, max_tokens: 1 };
    const impatient = client(LIMITED_KEY, { maxRetries: 0 });
    let limited;
    for (let i = 0; i < 100 && !limited; i++) {
      await impatient.chat.completions.create(request).catch((error) => {
        limited = error;
      });
    }
    check(limited instanceof OpenAI.RateLimitError, `100 requests and ${limited ?? "no limit"}`);
    check(limited.code === "rate_limit_exceeded", `code ${limited.code}`);
    const retryAfter = Number(limited.headers.get("retry-after"));
    check(retryAfter > 0 && retryAfter <= 120, `retry-after ${retryAfter}`);
    const begin = performance.now();
    await client(LIMITED_KEY).chat.completions.create(request);
    const took = (performance.now() - begin) / 1000;
    check(took >= retryAfter - 1, `${took.toFixed(2)} s: did not wait the ${retryAfter} s it was told`);
  },

  async cancel() {
    const stream = await usual.chat.completions.create({ model: MODEL, messages: long, max_tokens: 400, stream: true });
    for await (const chunk of stream) {
      if (chunk.choices[0]?.delta.content) break;
    }
    stream.controller.abort();
    await chat();
  },
};

let failed = false;
for (const [step, run] of Object.entries(steps)) {
  const begin = performance.now();
  let error;
  try {
    await run();
  } catch (fault) {
    error = `${fault.constructor.name}: ${fault.message}`;
    failed = true;
  }
  console.log(JSON.stringify({ step, ok: !error, ms: Math.round(performance.now() - begin), error }));
}
process.exit(failed ? 1 : 0);
