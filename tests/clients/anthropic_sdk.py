"""Anthropic's own Python SDK against a running server: python anthropic_sdk.py URL."""

import sys

import anthropic

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="unused", max_retries=0)
SAY = [{"role": "user", "content": "What is the weather in Paris?"}]
TOOL = {
    "name": "get_weather",
    "description": "Get the weather",
    "input_schema": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
}

whole = client.messages.create(model="ember", max_tokens=60, messages=SAY, extra_body={"temperature": 0}, system="Be brief.")
assert whole.content[0].type == "text" and whole.stop_reason in ("end_turn", "max_tokens"), whole
assert whole.usage.input_tokens > 0 and whole.usage.output_tokens > 0

with client.messages.stream(model="ember", max_tokens=60, messages=SAY, extra_body={"temperature": 0}, system="Be brief.") as stream:
    text = "".join(stream.text_stream)
    final = stream.get_final_message()
assert text == whole.content[0].text and final.stop_reason == whole.stop_reason
assert final.usage.output_tokens == whole.usage.output_tokens

count = client.messages.count_tokens(model="ember", messages=SAY, system="Be brief.")
read = whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0)
assert count.input_tokens == read, (count, whole.usage)

thinking = {"type": "enabled", "budget_tokens": 1024}
thought = client.messages.create(model="ember", max_tokens=2000, messages=SAY, thinking=thinking)
assert thought.content[0].type == "thinking" and thought.content[0].thinking

with client.messages.stream(
    model="ember", max_tokens=200, messages=SAY, tools=[TOOL], extra_body={"temperature": 0}, tool_choice={"type": "any"}
) as stream:
    pieces = [event for event in stream if event.type == "input_json"]
    called = stream.get_final_message()
use = next(block for block in called.content if block.type == "tool_use")
assert called.stop_reason == "tool_use" and use.name == "get_weather" and set(use.input) == {"town"}, called
assert len(pieces) > 1, "the input comes as it is generated"
result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "sunny"}]}
history = SAY + [{"role": "assistant", "content": called.content}, {"role": "user", "content": [result]}]
answer = client.messages.create(model="ember", max_tokens=20, messages=history, tools=[TOOL])
assert answer.role == "assistant"

stopped = client.messages.create(model="ember", max_tokens=200, messages=SAY, stop_sequences=["e"], extra_body={"temperature": 0})
assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "e")

# Breaking off.
with client.messages.stream(model="ember", max_tokens=1500, messages=SAY) as stream:
    next(iter(stream))
assert client.messages.create(model="ember", max_tokens=1, messages=SAY).content

for make, kind in [
    (lambda: client.messages.create(model="claude", max_tokens=1, messages=SAY), anthropic.NotFoundError),
    (lambda: client.messages.create(model="ember", max_tokens=1, messages=[]), anthropic.BadRequestError),
    (lambda: client.messages.create(model="ember", max_tokens=0, messages=SAY), anthropic.BadRequestError),
]:
    try:
        make()
        raise AssertionError(f"{kind} was expected")
    except kind as error:
        assert error.body["type"] == "error", error.body
print("anthropic: fine")
