"""The program of docs/integrations/nixl.md prints what the page says."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/docs"))
import blocks  # noqa: E402

PAGE = ROOT / "docs/integrations/nixl.md"
BOUND = 60  # seconds


def test_the_program_of_the_page_prints_its_last_comment(tmp_path):
    program, = (block for block in blocks.blocks(PAGE, PAGE.name) if block.text.startswith("# two_agents.py"))
    file = tmp_path / "two_agents.py"
    file.write_text(program.text, encoding="utf-8")
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=BOUND, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == program.text.rstrip().rpartition("# ")[2]
