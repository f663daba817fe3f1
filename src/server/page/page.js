// A chat over /v1/chat/completions. Text from the model only ever becomes text nodes.
"use strict";

const part = (id) => document.getElementById(id);
const messages = [];
let running = null;

// Settings stay in this browser; the key only as long as its tab.
for (const id of ["system", "temperature", "max_tokens", "effort", "key"]) {
  const store = id === "key" ? sessionStorage : localStorage;
  part(id).value = store.getItem("hipfire." + id) ?? "";
  part(id).addEventListener("change", () => store.setItem("hipfire." + id, part(id).value));
}

function headers() {
  const all = { "content-type": "application/json" };
  if (part("key").value) all.authorization = "Bearer " + part("key").value;
  return all;
}

async function health() {
  try {
    const answer = await fetch("/health");
    const told = await answer.json();
    part("state").textContent = answer.ok ? told.model + ", " + told.n_ctx + " tokens" : told.error.message;
    if (answer.ok) return;
  } catch {
    part("state").textContent = "the server does not answer";
  }
  setTimeout(health, 1000);
}

function add(kind) {
  const article = document.createElement("article");
  article.className = kind;
  part("talk").append(article);
  return article;
}

function body() {
  const system = part("system").value.trim();
  const told = system ? [{ role: "system", content: system }] : [];
  const asked = { messages: told.concat(messages), stream: true, stream_options: { include_usage: true } };
  if (part("temperature").value) asked.temperature = Number(part("temperature").value);
  if (part("max_tokens").value) asked.max_tokens = Number(part("max_tokens").value);
  if (part("effort").value) asked.reasoning_effort = part("effort").value;
  asked.return_progress = true;
  return JSON.stringify(asked);
}

// Yields the JSON of every event, however the network cuts them.
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("the connection ended before the answer did");
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ")) continue;
      if (line === "data: [DONE]") return;
      yield JSON.parse(line.slice(6));
    }
  }
}

class Shown {
  constructor() {
    this.article = add("assistant");
    this.thinking = document.createElement("details");
    this.thinking.append(document.createElement("summary"), document.createTextNode(""));
    this.thinking.firstChild.textContent = "Thinking";
    this.thinking.hidden = true;
    this.content = document.createTextNode("");
    this.counts = document.createElement("span");
    this.counts.className = "counts";
    this.article.append(this.thinking, this.content, this.counts);
  }

  event(event) {
    if (event.error) throw new Error(event.error.message);
    if (event.usage) this.counts.textContent = event.usage.completion_tokens + " tokens";
    if (event.timings) this.rate = event.timings.predicted_per_second;
    const progress = event.prompt_progress;
    if (progress) this.counts.textContent = "reading " + progress.processed + " of " + progress.total + " tokens";
    const delta = event.choices[0]?.delta ?? {};
    const thought = delta.reasoning_content ?? delta.reasoning;
    if (thought) {
      this.thinking.hidden = false;
      this.thinking.lastChild.data += thought;
    }
    if (delta.content) this.content.data += delta.content;
  }

  end() {
    if (this.rate) this.counts.textContent += ", " + this.rate.toFixed(1) + " a second";
    const message = { role: "assistant", content: this.content.data };
    if (this.thinking.lastChild.data) message.reasoning_content = this.thinking.lastChild.data;
    return message;
  }
}

async function ask(text) {
  messages.push({ role: "user", content: text });
  add("user").textContent = text;
  const shown = new Shown();
  running = new AbortController();
  part("send").hidden = true;
  part("stop").hidden = false;
  try {
    const request = { method: "POST", headers: headers(), body: body(), signal: running.signal };
    const answer = await fetch("/v1/chat/completions", request);
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    for await (const event of events(answer.body)) {
      shown.event(event);
      window.scrollTo(0, document.body.scrollHeight);
    }
    messages.push(shown.end());
  } catch (error) {
    if (error.name === "AbortError") {
      messages.push(shown.end());
    } else {
      // The question can be asked again; without its answer it must not stay.
      messages.pop();
      add("error").textContent = error.message;
    }
  }
  running = null;
  part("send").hidden = false;
  part("stop").hidden = true;
  part("text").focus();
}

part("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = part("text").value.trim();
  if (!text || running) return;
  part("text").value = "";
  ask(text);
});
part("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    part("ask").requestSubmit();
  }
});
part("stop").addEventListener("click", () => running?.abort());
part("reset").addEventListener("click", () => {
  running?.abort();
  messages.length = 0;
  part("talk").replaceChildren();
});
health();
