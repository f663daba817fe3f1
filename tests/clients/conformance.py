"""schemathesis over every route of a running server: python conformance.py URL.

The server must have been started with the key "sesame"; openapi.yaml describes its routes.
"""

import pathlib
import subprocess
import sys
import urllib.request

import yaml

folder = pathlib.Path(__file__).parent
url = sys.argv[1]
program = pathlib.Path(sys.executable).with_name("schemathesis")
command = [
    program, "--config-file", folder / "schemathesis.toml", "run", folder / "openapi.yaml", "--url", url,
    "--header", "Authorization: Bearer sesame", "--checks", "all", "--max-examples", "8", "--continue-on-failure",
    # The description is narrower than the server: what it must refuse is in tests/serve_errors.rs.
    "--exclude-checks", "negative_data_rejection",
]
done = subprocess.run(command, cwd=folder)
assert done.returncode == 0, "schemathesis found what is told above"

# It answers still, and the description has no route that the server lacks.
for path, methods in yaml.safe_load((folder / "openapi.yaml").read_text())["paths"].items():
    if "get" in methods:
        request = urllib.request.Request(url + path.replace("{id}", "ember"), headers={"x-api-key": "sesame"})
        assert urllib.request.urlopen(request).status == 200, path
print("conformance: fine")
