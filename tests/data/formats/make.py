"""Writes blocks of every quantised format and the values that the `gguf` package (PyPI, 0.17 or later) gives them.

Each FORMAT.bin holds blocks one after another; FORMAT.f32 their values, little-endian. The blocks: all zero bits; all
one bits with finite scales; the largest and the smallest (subnormal) F16 scales; then pseudo-random bytes whose scales
are kept finite. Run with: python tests/data/formats/make.py
"""

import pathlib

import gguf
import numpy as np

# Where the F16 scales lie: byte offsets in a block.
SCALES = {
    "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "IQ4_NL": [0], "IQ4_XS": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}
HERE = pathlib.Path(__file__).parent

for name, scales in SCALES.items():
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    random = np.random.default_rng(20261130)
    edges = []
    for fill, scale in [(0, 0.0), (255, 1.0), (255, 65504.0), (0, -65504.0), (170, 2.0**-24), (85, -(2.0**-15))]:
        block = np.full(size, fill, np.uint8)
        for at in scales:
            block[at : at + 2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
        edges.append(block)
    blocks = random.integers(0, 256, (1536 // elements, size), dtype=np.uint8)
    for at in scales:
        halves = (random.standard_normal(len(blocks)) * 0.02).astype(np.float16)
        blocks[:, at : at + 2] = halves.view(np.uint8).reshape(-1, 2)
    blocks = np.concatenate([np.stack(edges), blocks])
    (HERE / f"{name}.bin").write_bytes(blocks.tobytes())
    values = gguf.quants.dequantize(blocks, kind)
    (HERE / f"{name}.f32").write_bytes(values.astype("<f4").tobytes())

# What the package's own quantiser makes of normal values: the squared error that ours is held to.
values = np.random.default_rng(7).standard_normal(2048).astype("<f4")
(HERE / "normal.f32").write_bytes(values.tobytes())
lines = []
for name in ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]:
    kind = gguf.GGMLQuantizationType[name]
    error = values.astype(float) - gguf.quants.dequantize(gguf.quants.quantize(values, kind), kind)
    lines.append(f"{name} {np.square(error).sum():.9g}\n")
(HERE / "reference.txt").write_text("".join(lines))
