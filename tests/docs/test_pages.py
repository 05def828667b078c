"""The Python blocks of the pages in docs/ run, and the site's parts do what they should."""

import itertools
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "scripts")]
import blocks  # noqa: E402
import docs_cpp  # noqa: E402

DOCUMENTED_URL = "http://127.0.0.1:4479"
BOUND_S = 60
PAGES = {name: list(found) for name, found in itertools.groupby(blocks.all_blocks("python"), lambda block: block.page)}


@pytest.fixture(scope="module")
def registry():
    """The URL of a nanoctrl that runs for these tests."""
    program = shutil.which("nanoctrl") or str(ROOT / "build/release/ctrl/nanoctrl")
    command = [program, "server", "--port", "0", "--store", "memory", "--log-level", "error"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().strip().rpartition(" ")[2]
    finally:
        process.terminate()
        process.wait(10)


def program_of(found):
    """The blocks of a page as one program in which each line has the number that it has on the page."""
    lines = []
    for block in found:
        lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("page", sorted(PAGES))
def test_the_python_blocks_of_a_page_run(page, registry, tmp_path):
    path = tmp_path / page.replace("/", "_").replace(".md", ".py")
    path.write_text(program_of(PAGES[page]).replace(DOCUMENTED_URL, registry))
    done = subprocess.run(
        [sys.executable, "-B", str(path)], cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=BOUND_S, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    assert done.returncode == 0, f"docs/{page}, whose lines these are:\n{done.stdout}"


def test_each_guide_has_python_that_runs():
    guides = {f"guides/{path.name}" for path in (ROOT / "docs/guides").glob("*.md")}
    assert guides <= set(PAGES)


def test_comments_become_those_of_doxygen():
    text = "// A class.\nclass A {\n  int a;  // first\n          // and more\n  // Says <what>.\n  int b = f(\"//\");\n};\n"
    assert docs_cpp.with_doxygen_comments(text) == (
        "/// A class.\nclass A {\n  int a;  ///< first\n          ///< and more\n"
        "  /// Says \\<what\\>.\n  int b = f(\"//\");\n};\n"
    )


def test_the_reference_has_the_headers_that_users_include():
    headers = docs_cpp.public_headers()
    assert {"agent/peer_agent.h", "base/result.h", "transport/memory.h", "cache/client.h"} <= set(headers)
    assert not any("impl" in name for name in headers)


def test_cpp_blocks_keep_their_lines():
    [block] = [block for block in blocks.all_blocks("cpp") if "int main(" in block.text]
    source = blocks.cpp_source([block])
    assert f'#line {block.line} "docs/{block.page}"' in source and "int main() {" in source
