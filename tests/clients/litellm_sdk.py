"""litellm against a running server, through both of its roads: python litellm_sdk.py URL."""

import sys

import litellm

url = sys.argv[1]
SAY = [{"role": "user", "content": "What is the weather in Paris?"}]
litellm.telemetry = False
for model, base in [("openai/ember", f"{url}/v1"), ("anthropic/ember", url)]:
    given = {"model": model, "api_base": base, "api_key": "unused", "messages": SAY, "max_tokens": 30, "temperature": 0}
    whole = litellm.completion(**given)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in litellm.completion(**given, stream=True))
    assert streamed == (whole.choices[0].message.content or ""), (model, streamed, whole)
    assert whole.usage.completion_tokens > 0
try:
    litellm.completion(model="openai/ember", api_base=f"{url}/v1", api_key="unused", messages=SAY, temperature=-1)
    raise AssertionError("an error was expected")
except litellm.BadRequestError as error:
    assert "temperature" in str(error)
print("litellm: fine")
