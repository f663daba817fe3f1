"""What llama.cpp makes of a GGUF file: its logits of given ids, its ids of a given text, a file in another type.

    llama.py logits FILE.gguf IDS.txt OUT.f32     one row of logits an id, F32 little-endian
    llama.py tokens FILE.gguf TEXT.txt OUT.txt    ids separated by blanks; text that looks like a token is one
    llama.py quantize FILE.gguf TYPE.txt OUT.gguf llama.cpp's own quantiser; the type is ggml's file type number

Needs llama-cpp-python 0.3.36 (it vendors a llama.cpp that knows qwen4exp); see setup.sh.
"""

import pathlib
import sys

import numpy as np
import llama_cpp
from llama_cpp import Llama

what, model, given, out = sys.argv[1:]
if what == "tokens":
    llama = Llama(model, vocab_only=True, verbose=False)
    ids = llama.tokenize(pathlib.Path(given).read_bytes(), add_bos=False, special=True)
    pathlib.Path(out).write_text(" ".join(map(str, ids)))
elif what == "quantize":
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = int(pathlib.Path(given).read_text())
    if llama_cpp.llama_model_quantize(model.encode(), out.encode(), params) != 0:
        sys.exit(f"llama.cpp cannot quantise {model}")
else:
    ids = [int(word) for word in pathlib.Path(given).read_text().split()]
    llama = Llama(model, n_ctx=max(512, len(ids)), n_batch=512, n_threads=2, logits_all=True, verbose=False)
    llama.eval(ids)
    np.asarray(llama.scores[: len(ids)], dtype="<f4").tofile(out)
