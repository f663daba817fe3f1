"""Time to the first token of a long conversation's first and second turn, against a running `hipfire serve`.

    hipfire serve --device hip --synthetic released:q4_0 -m models/ember -c 131072 --port 11436 &
    python3 benches/follow_up.py --url http://127.0.0.1:11436 --tokens 100000

Prints a line of JSON a turn: tokens of the prompt, of them out of the cache, seconds to the first token and in all.
"""

import argparse
import http.client
import json
import random
import time
import urllib.parse

parser = argparse.ArgumentParser()
parser.add_argument("--url", default="http://127.0.0.1:11435")
parser.add_argument("--tokens", type=int, default=100_000, help="about how many tokens the first turn has")
parser.add_argument("--turns", type=int, default=3)
parser.add_argument("--answer", type=int, default=32)
args = parser.parse_args()
address = urllib.parse.urlparse(args.url)


def call(method, path, body=None):
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=600)
    connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
    return connection.getresponse()


def turn(messages):
    """An answer as it streams: its text, seconds to its first token and in all, its usage."""
    body = {"model": model, "messages": messages, "max_completion_tokens": args.answer, "stream": True,
            "stream_options": {"include_usage": True}, "temperature": 0}
    started, first, text, usage = time.monotonic(), None, "", None
    response = call("POST", "/v1/chat/completions", body)
    if response.status != 200:
        raise SystemExit(f"{response.status}: {response.read().decode()}")
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            # Tokens without a text have no event of their own: the last event ends the wait then.
            delta = choice["delta"].get("content") or choice["delta"].get("reasoning_content") or ""
            if first is None and (delta or choice.get("finish_reason")):
                first = time.monotonic() - started
            text += delta
    return text, first, time.monotonic() - started, usage


while call("GET", "/health").status == 503:
    time.sleep(1)  # the model is being loaded
model = json.loads(call("GET", "/v1/models").read())["data"][0]["id"]
words = "the river runs under a stone bridge while seven quiet boats drift home before rain".split()
random.seed(1)
sample = " ".join(random.choices(words, k=2000))
of_sample = json.loads(call("POST", "/tokenize", {"content": sample}).read())
count = len(of_sample["tokens"])
story = " ".join(random.choices(words, k=2000 * args.tokens // count))
messages = [{"role": "user", "content": story}]
for number in range(1, args.turns + 1):
    text, first, wall, usage = turn(messages)
    details = usage.get("prompt_tokens_details") or {}
    print(json.dumps({"turn": number, "prompt_tokens": usage["prompt_tokens"],
                      "cached_tokens": details.get("cached_tokens", 0), "answer_tokens": usage["completion_tokens"],
                      "first_token_s": round(first, 3), "wall_s": round(wall, 3)}), flush=True)
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "And what happened next?"}]
