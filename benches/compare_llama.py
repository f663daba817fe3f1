#!/usr/bin/env python3
"""Compares hipfire's speed with llama.cpp's on the same GGUF files: same threads, same prompt, in turn in one run.

The model is synthetic: the released widths with four layers and 32 experts, 2 GB in F16. It is made in a temporary
folder unless --files names one, which is kept and used again.

    tests/peer/setup.sh
    target/peer/venv/bin/python benches/compare_llama.py --rounds 3
"""
import argparse, json, os, pathlib, platform, shutil, statistics, subprocess, sys, tempfile, time

parser = argparse.ArgumentParser()
parser.add_argument("--binary", default="target/release/hipfire")
parser.add_argument("--types", default="f16,q8_0,q4_0,q4_k")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--tokens", type=int, default=32)
parser.add_argument("--files", type=pathlib.Path)
parser.add_argument("--llama", help=argparse.SUPPRESS)
args = parser.parse_args()

SENTENCE = "Once upon a time there was a brave little mouse named Hazel who lived in a tiny hole in the wall. "
TEXT = SENTENCE * 22


def llama(file):
    """Tokens of the prompt and both rates, in a process of its own as hipfire is."""
    import numpy
    from llama_cpp import Llama

    model = Llama(file, n_threads=args.threads, n_threads_batch=args.threads, n_ctx=1024, n_batch=512, n_ubatch=512,
                  use_mmap=True, verbose=False)
    ids = model.tokenize(TEXT.encode(), add_bos=False, special=True)
    # Pages are brought in before time is taken, as hipfire's load does.
    model.eval(ids[:8])
    model.reset()
    begin = time.perf_counter()
    model.eval(ids)
    prefill = time.perf_counter() - begin
    begin = time.perf_counter()
    for _ in range(args.tokens):
        logits = numpy.ctypeslib.as_array(model._ctx.get_logits_ith(-1), shape=(model.n_vocab(),))
        model.eval([int(logits[3:].argmax()) + 3])
    decode = time.perf_counter() - begin
    return {"prompt": len(ids), "prefill": len(ids) / prefill, "decode": args.tokens / decode}


def hipfire(file):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        text.write(TEXT)
        text.flush()
        # One token more than is timed: the first one is the prompt's work.
        command = [args.binary, "run", "-m", file, "--threads", str(args.threads), "--raw", "-f", text.name, "-n",
                   str(args.tokens + 1), "--temperature", "0", "--ctx-size", "1024", "--format", "json"]
        command += [option for token in range(3) for option in ("--logit-bias", f"{token}=-100")]
        timings = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["timings"]
    return {"prompt": timings["prompt_n"], "made": timings["predicted_n"], "prefill": timings["prompt_per_second"],
            "decode": timings["predicted_per_second"]}


def make(folder):
    wanted = [kind for kind in args.types.split(",") if not (folder / f"{kind}.gguf").exists()]
    if not wanted:
        return
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir(exist_ok=True)
    subprocess.run(["cargo", "bench", "--quiet", "--bench", "forward", "--", "--write", checkpoint.resolve()], check=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        shutil.copy(pathlib.Path("models/ember") / name, checkpoint)
    for kind in wanted:
        out = folder / f"{kind}.gguf"
        subprocess.run([args.binary, "quantize", checkpoint, "-o", out, "--type", kind, "--no-mtp"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    shutil.rmtree(checkpoint)


def machine():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def compare(folder):
    make(folder)
    build = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    import llama_cpp
    print(f"{machine()}, {args.threads} threads; hipfire {build}, llama-cpp-python {llama_cpp.__version__}; "
          f"{time.strftime('%Y-%m-%d')}; medians of {args.rounds} rounds, {args.tokens} tokens generated\n")
    print("| type | GiB | prompt | prefill hipfire | llama.cpp | ratio | decode hipfire | llama.cpp | ratio |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for kind in args.types.split(","):
        file = str(folder / f"{kind}.gguf")
        ours, theirs = [], []
        for _ in range(args.rounds):
            ours.append(hipfire(file))
            again = [sys.executable, __file__, "--llama", file, "--threads", str(args.threads), "--tokens", str(args.tokens)]
            theirs.append(json.loads(subprocess.run(again, capture_output=True, text=True, check=True).stdout))
        if ours[0]["prompt"] != theirs[0]["prompt"] or ours[0]["made"] != args.tokens + 1:
            sys.exit(f"not the same work: {ours[0]} and {theirs[0]}")
        row = f"| {kind} | {os.path.getsize(file) / 2**30:.2f} | {ours[0]['prompt']} "
        for what in ("prefill", "decode"):
            a, b = (statistics.median(run[what] for run in runs) for runs in (ours, theirs))
            row += f"| {a:.1f} | {b:.1f} | {a / b:.2f} "
        print(row + "|", flush=True)


if args.llama:
    print(json.dumps(llama(args.llama)))
elif args.files:
    args.files.mkdir(parents=True, exist_ok=True)
    compare(args.files)
else:
    with tempfile.TemporaryDirectory() as name:
        compare(pathlib.Path(name))
