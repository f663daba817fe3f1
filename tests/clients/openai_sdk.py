"""OpenAI's own Python SDK against a running server: python openai_sdk.py URL."""

import json
import sys

import openai

url = sys.argv[1]
client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
SAY = [{"role": "user", "content": "What is the weather in Paris?"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
    },
}

assert [model.id for model in client.models.list()] == ["ember"]
assert client.models.retrieve("ember").id == "ember"

# Whole, streamed, and the same.
whole = client.chat.completions.create(model="ember", messages=SAY, temperature=0, max_tokens=40)
assert whole.choices[0].finish_reason in ("stop", "length")
assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
assert whole.usage.prompt_tokens_details.cached_tokens >= 0
assert whole.choices[0].message.reasoning_content
options = {"stream": True, "stream_options": {"include_usage": True}}
text, usage = "", None
for chunk in client.chat.completions.create(model="ember", messages=SAY, temperature=0, max_tokens=40, **options):
    usage = chunk.usage or usage
    if chunk.choices:
        text += chunk.choices[0].delta.content or ""
assert text == whole.choices[0].message.content, (text, whole)
assert usage.completion_tokens == whole.usage.completion_tokens

# A call, its result, and an answer.
called = client.chat.completions.create(model="ember", messages=SAY, tools=[TOOL], temperature=0, max_tokens=80)
call = called.choices[0].message.tool_calls[0]
assert called.choices[0].finish_reason == "tool_calls"
assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"town": "Paris"})
answered = client.chat.completions.create(
    model="ember",
    messages=SAY + [called.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}],
    tools=[TOOL],
    max_tokens=30,
)
assert answered.choices[0].message.role == "assistant"

# The SDK's own helper puts the fragments of a streamed call together.
with client.chat.completions.stream(model="ember", messages=SAY, tools=[TOOL], temperature=0, max_tokens=80) as stream:
    fragments = [event for event in stream if event.type == "tool_calls.function.arguments.delta"]
    final = stream.get_final_completion().choices[0]
assert json.loads(final.message.tool_calls[0].function.arguments) == {"town": "Paris"}
assert len(fragments) > 1, "arguments come as they are generated"

# Log-probabilities.
scored = client.chat.completions.create(
    model="ember", messages=SAY, temperature=0, max_tokens=20, logprobs=True, top_logprobs=3, reasoning_effort="none"
)
tokens = scored.choices[0].logprobs.content
assert "".join(token.token for token in tokens).strip() == scored.choices[0].message.content.strip()
assert all(len(token.top_logprobs) == 3 and token.logprob <= 0 for token in tokens)

# A call that must be made, and an answer that must be JSON.
forced = client.chat.completions.create(
    model="ember", messages=[{"role": "user", "content": "Hello!"}], tools=[TOOL], tool_choice="required", max_tokens=200
)
assert forced.choices[0].message.tool_calls[0].function.name == "get_weather"
schema = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
formed = client.chat.completions.create(
    model="ember",
    messages=[{"role": "user", "content": "Who is there?"}],
    response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}},
    max_tokens=300,
)
person = json.loads(formed.choices[0].message.content)
assert set(person) == {"name", "age"} and isinstance(person["age"], int), person

# Several answers, stop strings, text completions.
several = client.chat.completions.create(model="ember", messages=SAY, n=2, seed=1, temperature=1.5, max_tokens=10)
assert [choice.index for choice in several.choices] == [0, 1]
plain = client.completions.create(model="ember", prompt="Once upon a time", max_tokens=20, temperature=0, stop=["."])
assert plain.choices[0].text and "." not in plain.choices[0].text
streamed = client.completions.create(model="ember", prompt="Once upon a time", max_tokens=20, temperature=0, stream=True, stop=["."])
assert "".join(chunk.choices[0].text for chunk in streamed) == plain.choices[0].text

# Responses.
response = client.responses.create(model="ember", input="What is 3 + 4?", max_output_tokens=400, temperature=0)
assert response.output_text and response.usage.total_tokens > 0
with client.responses.stream(model="ember", input="What is 3 + 4?", max_output_tokens=400, temperature=0) as stream:
    deltas = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
    assert deltas == stream.get_final_response().output_text == response.output_text
flat = {"type": "function", **TOOL["function"]}
called = client.responses.create(model="ember", input=SAY, tools=[flat], temperature=0, max_output_tokens=100)
item = next(item for item in called.output if item.type == "function_call")
assert (item.name, json.loads(item.arguments)) == ("get_weather", {"town": "Paris"})
history = SAY + [item.to_dict() for item in called.output]
history.append({"type": "function_call_output", "call_id": item.call_id, "output": "sunny"})
assert client.responses.create(model="ember", input=history, max_output_tokens=20).id

scored = client.responses.create(
    model="ember", input="Hello!", max_output_tokens=20, temperature=0, reasoning={"effort": "none"},
    include=["message.output_text.logprobs"], top_logprobs=2,
)
tokens = scored.output[0].content[0].logprobs
assert "".join(token.token for token in tokens).strip() == scored.output_text.strip()
assert all(len(token.top_logprobs) == 2 and token.logprob <= 0 for token in tokens)

# Errors are the SDK's own classes.
for make, kind in [
    (lambda: client.chat.completions.create(model="gpt-4", messages=SAY), openai.NotFoundError),
    (lambda: client.chat.completions.create(model="ember", messages=[]), openai.BadRequestError),
    (lambda: client.chat.completions.create(model="ember", messages=SAY, temperature=-1), openai.BadRequestError),
    (lambda: client.embeddings.create(model="ember", input="a"), openai.InternalServerError),
]:
    try:
        make()
        raise AssertionError(f"{kind} was expected")
    except kind as error:
        assert error.body["message"], error

# Breaking off.
stream = client.chat.completions.create(model="ember", messages=SAY, max_tokens=1500, stream=True)
next(iter(stream))
stream.close()
assert client.chat.completions.create(model="ember", messages=SAY, max_tokens=1).choices
print("openai: fine")
