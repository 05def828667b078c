#!/usr/bin/env python3
"""examples/python/nanoctrl_http.py against a nanoctrl of its own: test_nanoctrl_http.py NANOCTRL."""

import contextlib
import http.client
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python" / "nanoctrl_http.py"
NANOCTRL = ""
BOUND = 60  # seconds, which only a failure reaches


@contextlib.contextmanager
def nanoctrl(*options):
    """The URL of one that runs."""
    with tempfile.TemporaryDirectory() as runtime:
        command = [NANOCTRL, "server", "--port", "0", "--store", "memory", "--json", *options]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "SLIME_RUNTIME_DIR": runtime},
        )
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()
            process.communicate(timeout=BOUND)


def run_example(url, **environment):
    return subprocess.run(
        [sys.executable, "-B", EXAMPLE, url],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=BOUND,
    )


def ask_root(url, accept):
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=BOUND)
    with contextlib.closing(connection):
        connection.request("GET", "/", headers={"Accept": accept})
        reply = connection.getresponse()
        return reply.status, reply.read().decode()


class Routes(unittest.TestCase):
    def test_without_tokens(self):
        with nanoctrl() as url:
            for _ in range(2):  # it leaves nothing behind that a second one would meet
                done = run_example(url)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn("every route answered as published", done.stdout)

    def test_with_tokens(self):
        with tempfile.TemporaryDirectory() as folder:
            token = subprocess.run([NANOCTRL, "token", "new"], check=True, capture_output=True, text=True).stdout.strip()
            file = pathlib.Path(folder, "token")
            file.write_text(token)
            file.chmod(0o600)
            with nanoctrl("--admin-token-file", file) as url:
                self.assertEqual(run_example(url, SLIME_CTRL_TOKEN=token).returncode, 0)
                refused = run_example(url, SLIME_CTRL_TOKEN="")
                self.assertEqual(refused.returncode, 1)
                self.assertIn('401: {"message":', refused.stderr)
                self.assertIn('"status":"error"', refused.stderr)

    def test_root_is_text_for_programs_only(self):
        with nanoctrl() as url:
            self.assertEqual(ask_root(url, "*/*"), (200, "nanoctrl is running\n"))
            self.assertNotEqual(ask_root(url, "text/html,*/*;q=0.8"), (200, "nanoctrl is running\n"))


if __name__ == "__main__":
    NANOCTRL = sys.argv.pop(1)
    unittest.main()
