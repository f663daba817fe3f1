"""What llama.cpp makes of a GGUF file: its logits of given ids, or its ids of a given text.

    llama.py logits FILE.gguf IDS.txt OUT.f32     one row of logits an id, F32 little-endian
    llama.py tokens FILE.gguf TEXT.txt OUT.txt    ids separated by blanks; text that looks like a token is one

Needs llama-cpp-python 0.3.36 (it vendors a llama.cpp that knows qwen4exp); see setup.sh.
"""

import pathlib
import sys

import numpy as np
from llama_cpp import Llama

what, model, given, out = sys.argv[1:]
if what == "tokens":
    llama = Llama(model, vocab_only=True, verbose=False)
    ids = llama.tokenize(pathlib.Path(given).read_bytes(), add_bos=False, special=True)
    pathlib.Path(out).write_text(" ".join(map(str, ids)))
else:
    ids = [int(word) for word in pathlib.Path(given).read_text().split()]
    llama = Llama(model, n_ctx=max(512, len(ids)), n_batch=512, n_threads=2, logits_all=True, verbose=False)
    llama.eval(ids)
    np.asarray(llama.scores[: len(ids)], dtype="<f4").tofile(out)
