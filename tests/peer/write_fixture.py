"""Writes tests/data/gguf/writer.gguf with the `gguf` package (PyPI, 0.19): keys of every kind, and for each format a
tensor NAME in it and a tensor NAME.f32 with the values that the package's dequantisation gives.

Formats that the package can quantise are its own quantiser's work on normal random rows; for the others the bytes are
random with finite scales. Run with: target/peer/venv/bin/python tests/peer/write_fixture.py
"""

import pathlib

import gguf
import numpy as np

# Where the F16 scales lie in blocks that the package cannot make: byte offsets.
SCALES = {"Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0]}
OWN = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]
ROWS, COLS = 3, 512

out = pathlib.Path(__file__).parent.parent / "data/gguf/writer.gguf"
writer = gguf.GGUFWriter(out, "qwen4exp")
writer.add_custom_alignment(64)
for kind, value in [("uint8", 200), ("int8", -100), ("uint16", 60000), ("int16", -30000), ("uint32", 4000000000),
                    ("int32", -2000000000), ("uint64", 2**63 + 1), ("int64", -(2**62)), ("float32", 0.1),
                    ("float64", 0.1), ("bool", True), ("string", "caf\u00e9 \U0001F42D")]:
    getattr(writer, f"add_{kind}")(f"test.{kind}", value)
writer.add_array("test.texts", ["", "a", "\u00e9\u00e9"])
writer.add_array("test.numbers", [1, 2, 3])
random = np.random.default_rng(20261130)
for name in OWN + list(SCALES):
    kind = gguf.GGMLQuantizationType[name]
    rows = random.standard_normal((ROWS, COLS)).astype(np.float32)
    if name in OWN:
        data = gguf.quants.quantize(rows, kind)
    else:
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = random.integers(0, 256, (ROWS * COLS // elements, size), dtype=np.uint8)
        for at in SCALES[name]:
            halves = (random.standard_normal(len(blocks)) * 0.02).astype(np.float16)
            blocks[:, at : at + 2] = halves.view(np.uint8).reshape(-1, 2)
        data = blocks.reshape(ROWS, -1)
    writer.add_tensor(name, data, raw_dtype=kind)
    writer.add_tensor(f"{name}.f32", gguf.quants.dequantize(data, kind).astype(np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
