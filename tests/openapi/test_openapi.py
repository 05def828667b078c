"""Generated requests to a real nanoctrl: its answers are as ctrl/openapi.json says, to right ones and to wrong ones."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SEED = int(os.environ.get("SLIME_OPENAPI_SEED", "20261123"))
EXAMPLES = int(os.environ.get("SLIME_OPENAPI_EXAMPLES", "3"))  # of each operation, beside those of each limit


@pytest.fixture
def nanoctrl(tmp_path):
    """The URL and an administrator's token of a nanoctrl with an empty registry."""
    program = shutil.which("nanoctrl")
    assert program, "nanoctrl is not on the PATH"
    token = subprocess.run([program, "token", "new"], check=True, capture_output=True, text=True).stdout.strip()
    token_file = tmp_path / "admin.token"
    token_file.touch(mode=0o600)
    token_file.write_text(token + "\n")
    server = subprocess.Popen(
        [program, "server", "--port", "0", "--json", "--log-level", "error", "--admin-token-file", token_file],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "SLIME_RUNTIME_DIR": str(tmp_path)})
    try:
        yield json.loads(server.stdout.readline())["url"], token
        assert server.poll() is None, "nanoctrl has ended"
    finally:
        server.terminate()
        server.wait(timeout=60)
        server.stdout.close()


# By tag, so that none takes long.
@pytest.mark.parametrize("tag", ["peers", "lists", "tokens", "server", "NanoCtrl"])
def test_answers_are_as_the_document_says(nanoctrl, tmp_path, tag):
    url, token = nanoctrl
    print("seed", SEED)
    config = Path(__file__).with_name("schemathesis.toml")
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", "--config-file", config, "run", url + "/v1/openapi.json",
         "-H", f"Authorization: Bearer {token}", "--seed", str(SEED), "--max-examples", str(EXAMPLES), "--include-tag", tag, "--no-color"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-20000:]


def test_no_operation_is_without_a_tag_of_these():
    document = json.loads((Path(__file__).parents[2] / "ctrl" / "openapi.json").read_text())
    tags = {tuple(operation["tags"]) for path in document["paths"].values()
            for method, operation in path.items() if method != "parameters"}
    assert tags == {("peers",), ("lists",), ("tokens",), ("server",), ("NanoCtrl",)}
