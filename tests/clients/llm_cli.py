"""The `llm` program against a running server, set up as its manual says: python llm_cli.py URL."""

import os
import pathlib
import subprocess
import sys
import tempfile

program = pathlib.Path(sys.executable).with_name("llm")
with tempfile.TemporaryDirectory() as folder:
    model = f"- model_id: hipfire\n  model_name: ember\n  api_base: {sys.argv[1]}/v1\n"
    pathlib.Path(folder, "extra-openai-models.yaml").write_text(model)
    env = {**os.environ, "LLM_USER_PATH": folder}
    for options in [[], ["--no-stream"]]:
        command = [program, "-m", "hipfire", "-o", "max_tokens", "40", *options, "Tell me a story about a mouse."]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        assert done.stdout.strip(), done
    more = [program, "-c", "-o", "max_tokens", "40", "And then?"]
    assert subprocess.run(more, env=env, capture_output=True, text=True, check=True).stdout.strip()
print("llm: fine")
