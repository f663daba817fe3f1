#!/usr/bin/env python3
"""Each kernel at the released geometry on an NVIDIA card, against its own floor; prints a table in Markdown.

The launches are those of the whole model, as `hipfire bench --profile` times them one by one between two events (which
adds about two microseconds to each). A floor is what all launches of a kernel in one step must move over the bandwidth
that the card shows in a copy, or what they must compute over the rate that its library shows for 8,192 x 8,192 x 8,192 in
F16, whichever is longer. Needs PyTorch; weights are random and the routing skewed (`--synthetic`).

    HIPFIRE_HIP_LIBRARY=libhip_nvidia.so python3 benches/kernels_h200.py --hipfire hipfire --pack ptx.tar.gz
"""
import argparse, datetime, json, subprocess, time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--hipfire", default="hipfire")
parser.add_argument("--pack", required=True)
parser.add_argument("--prompt", type=int, default=4096)
parser.add_argument("--depth", type=int, default=16384)
parser.add_argument("--answer", type=int, default=8)
args = parser.parse_args()


def rate(work, amount, turns=20):
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(turns):
        work()
    torch.cuda.synchronize()
    return amount * turns / (time.perf_counter() - begin)


one = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
two = torch.empty_like(one)
BANDWIDTH = rate(lambda: two.copy_(one), 2 * one.numel())
a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.float16) for _ in range(2))
MATRIX = rate(lambda: a @ b, 2 * 8192**3)
del one, two, a, b
torch.cuda.empty_cache()

# The released geometry (spec section 1).
HIDDEN, STREAMS, RANK, LAYERS, GDN, QSA, VOCAB = 2560, 4, 320, 48, 36, 12, 248320
WIDE, EXPERTS, TOP, INNER = STREAMS * HIDDEN, 512, 10, 640
CHANNELS, VALUES, VALUE_HEADS = 2 * 16 * 128 + 48 * 128, 48 * 128, 48
HEADS, KV, DIM, INDEX_HEADS, INDEX_DIM, BUDGET = 24, 2, 256, 4, 128, 2048
Q8, Q4 = 34 / 32, 18 / 32

read = WIDE * RANK + STREAMS * WIDE
gdn = HIDDEN * (CHANNELS + VALUES + 2 * VALUE_HEADS) + VALUES * HIDDEN
qsa = HIDDEN * (2 * HEADS * DIM + 2 * KV * DIM + (INDEX_HEADS + 1) * INDEX_DIM) + HEADS * DIM * HIDDEN
ple = (WIDE + HIDDEN) * HIDDEN
trunk = 2 * LAYERS * read + GDN * gdn + QSA * qsa + LAYERS * HIDDEN + ple  # without gates and shared experts
up = 2 * LAYERS * WIDE * RANK
rows = args.prompt
contexts = [args.depth + row + 1 for row in range(rows)]
selected = sum(min(context, BUDGET + context % 4) for context in contexts)
blocks = sum(context // 4 for context in contexts)
state = VALUE_HEADS * 128 * 128 * 4
decode_blocks = args.depth // 4

# Bytes and F16 matrix operations of all launches of a kernel in one step.
DECODE = {
    "gemv_q8_0_r1": ((trunk + WIDE * RANK + VOCAB * HIDDEN) * Q8, 0),
    "gemv_f32_r1": (LAYERS * EXPERTS * HIDDEN * 4, 0),
    "hyper_gate_q8_0_r1": ((up + WIDE * RANK) * Q8, 0),
    "moe_gate_up_q4_0_r1": (LAYERS * TOP * 2 * INNER * HIDDEN * Q4, 0),
    "moe_down_q4_0_r1": (LAYERS * TOP * INNER * HIDDEN * Q4, 0),
    "moe_gate_up_q8_0_r1": (LAYERS * 2 * INNER * HIDDEN * Q8, 0),
    "moe_down_q8_0_r1": (LAYERS * INNER * HIDDEN * Q8, 0),
    "gdn_step_128": (GDN * 2 * state, 0),
    "qsa_attend_fp8_g12": (QSA * min(args.depth, BUDGET) * 2 * KV * (DIM + 2), 0),
    "qsa_score_bf16_r1": (QSA * decode_blocks * INDEX_DIM * 2, 0),
}
PREFILL = {
    "gemm_q8_0": ((trunk + up) * Q8 + rows * 4 * trunk / HIDDEN, 2 * rows * (trunk + up)),
    "moe_gemm_gate_up_q4_0": (LAYERS * EXPERTS * 2 * INNER * HIDDEN * Q4, 2 * rows * LAYERS * TOP * 2 * INNER * HIDDEN),
    "moe_gemm_down_q4_0": (LAYERS * EXPERTS * INNER * HIDDEN * Q4, 2 * rows * LAYERS * TOP * INNER * HIDDEN),
    "moe_gemm_gate_up_q8_0": (LAYERS * 2 * INNER * HIDDEN * Q8, 2 * rows * LAYERS * 2 * INNER * HIDDEN),
    "moe_gemm_down_q8_0": (LAYERS * INNER * HIDDEN * Q8, 2 * rows * LAYERS * INNER * HIDDEN),
    "qsa_gather_attend_256": (0, QSA * selected * HEADS * DIM * 4),
    "qsa_score_bf16_r16": (QSA * blocks * 4, QSA * blocks * INDEX_HEADS * INDEX_DIM * 2),
    # A chunk of 64 rows: state in and out once a segment, rows in and out.
    "gdn_scan": (GDN * (2 * state + rows * 4 * (CHANNELS + VALUES)), 0),
    "hyper_write": (2 * LAYERS * rows * WIDE * 4 * 3, 0),
    "hyper_mix": (2 * LAYERS * rows * WIDE * 4 * 2, 0),
}

command = [args.hipfire, "bench", "--synthetic", "released:q4_0", "--device", "hip", "--kernel-pack", args.pack, "-p",
           str(rows), "-n", str(args.answer), "-d", str(args.depth), "-c", str(args.depth + 2 * rows), "--profile",
           "-o", "jsonl"]
lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
times = [json.loads(line) for line in lines]
print("# Kernels on an NVIDIA card, against their own floors\n")
print("`python3 benches/kernels_h200.py --hipfire … --pack …` (its head says how a floor is made); "
      f"{times[0]['device']}, {times[0]['kernels']}, {datetime.date.today()}.\n")
print(f"Measured in the same run: a copy moves {BANDWIDTH / 1e9:,.0f} GB/s, F16 products of the vendor's library run at "
      f"{MATRIX / 1e12:,.0f} TFLOP/s. `released:q4_0`, behind {args.depth:,} tokens; times are of one step.\n")
print("| step | kernel | launches | µs each | ms | floor, ms | share of the floor's rate | binds |")
print("|---|---|--:|--:|--:|--:|--:|---|")
for floors, steps, prefix in ((DECODE, args.answer, "tg"), (PREFILL, 1, "pp")):
    mine = [time for time in times if time["test"].startswith(prefix)]
    step = "one token" if prefix == "tg" else f"{rows:,} tokens"
    for name, (moved, operations) in floors.items():
        group = [time for time in mine if time["kernel"].startswith(name)]
        launches = sum(time["launches"] for time in group) / steps
        took = sum(time["milliseconds"] for time in group) / steps
        terms = {"memory": moved / BANDWIDTH, "matrix": operations / MATRIX}
        binds = max(terms, key=terms.get)
        floor = 1e3 * terms[binds]
        if launches:
            print(f"| {step} | {name} | {launches:g} | {1e3 * took / launches:.1f} | {took:.2f} | {floor:.2f} | "
                  f"{floor / took:.0%} | {binds} |")
    rest = [time for time in mine if not any(time["kernel"].startswith(name) for name in floors)]
    took = sum(time["milliseconds"] for time in rest) / steps
    print(f"| {step} | {len(rest)} others | {sum(time['launches'] for time in rest) / steps:g} | | {took:.2f} | | | |")
    select = sum(time["milliseconds"] for time in mine if time["kernel"] in ("qsa_narrow", "qsa_select"))
    score = sum(time["milliseconds"] for time in mine if time["kernel"].startswith("qsa_score"))
    print(f"| {step} | selection (qsa_narrow, qsa_select) against scoring | | | {select / steps:.2f} | | {select / score:.0%} of it | |")
