#!/usr/bin/env python3
"""Compares hipfire with transformers on the embedded model: same machine, same cores, in one run.

Prints the largest difference of log-probabilities over a text, then decode and prefill rates of both in turn.

    python3 benches/compare_transformers.py --binary target/release/hipfire --model models/ember --threads 2
"""
import argparse, json, os, platform, statistics, subprocess, sys, tempfile, time

parser = argparse.ArgumentParser()
parser.add_argument("--binary", default="target/release/hipfire")
parser.add_argument("--model", default="models/ember")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--rounds", type=int, default=3)
args = parser.parse_args()
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

torch.set_num_threads(args.threads)
PROMPT = "Once upon a time there was a brave little mouse named Hazel who lived in a tiny hole in the wall. "
tokenizer = AutoTokenizer.from_pretrained(args.model)
short = tokenizer(PROMPT)["input_ids"]
long = (short * (1024 // len(short) + 1))[:1024]


def hipfire(*options):
    command = [args.binary, *options, "-m", args.model, "--threads", str(args.threads)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def score(ids):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(" ".join(map(str, ids)))
        file.flush()
        rows = [json.loads(line) for line in hipfire("score", "--tokens", file.name).splitlines()]
    return [row["logprob"] for row in rows if "pos" in row][1:]


def reference(model, ids):
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].float()
    return torch.log_softmax(logits, -1)[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()


def timed_reference(model, ids, tokens):
    with torch.no_grad():
        begin = time.perf_counter()
        model(torch.tensor([ids]))
        prefill = len(ids) / (time.perf_counter() - begin)
        begin = time.perf_counter()
        model.generate(torch.tensor([short]), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False)
        return prefill, tokens / (time.perf_counter() - begin)


def timed_hipfire(ids, tokens):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(tokenizer.decode(ids))
        file.flush()
        prefill = json.loads(hipfire("run", "--raw", "-f", file.name, "-n", "1", "--temperature", "0", "--format", "json"))
    decode = json.loads(hipfire("run", "--raw", "-n", str(tokens), "--temperature", "0", "--logit-bias", "0=-100",
                                "--logit-bias", "2=-100", "--format", "json", PROMPT))
    return prefill["timings"]["prompt_per_second"], decode["timings"]["predicted_per_second"]


print(f"machine {platform.processor() or platform.machine()}, {args.threads} threads, torch {torch.__version__}, "
      f"transformers {transformers.__version__}, {time.strftime('%Y-%m-%d')}")
exact = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
for name, ids in (("short", short), ("long", long)):
    difference = max(abs(a - b) for a, b in zip(score(ids), reference(exact, ids)))
    print(f"log-probabilities, {name} text of {len(ids)} tokens: largest difference {difference:.2e}")
models = {"F32": exact, "BF16": AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16).eval()}
rates = {"hipfire": [], **{f"transformers {name}": [] for name in models}}
for _ in range(args.rounds):
    rates["hipfire"].append(timed_hipfire(long, 300))
    for name, model in models.items():
        rates[f"transformers {name}"].append(timed_reference(model, long, 40))
ours = [statistics.median(values) for values in zip(*rates["hipfire"])]
print(f"{'':20}{'prefill tok/s':>15}{'decode tok/s':>15}{'hipfire is, prefill':>22}{'decode':>10}")
for name, values in rates.items():
    prefill, decode = (statistics.median(column) for column in zip(*values))
    print(f"{name:20}{prefill:15.0f}{decode:15.1f}{ours[0] / prefill:21.1f}x{ours[1] / decode:9.1f}x")
