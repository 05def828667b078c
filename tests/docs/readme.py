"""README's programs: where they are, and a server and a client of them that talk to each other.

    readme.py PROGRAM      runs README's C++ program, compiled as PROGRAM, as server and as client
"""

import pathlib
import subprocess
import sys
from typing import List

import blocks

README = blocks.ROOT / "README.md"
EXPECTED = "40 + 2 = 42, weights[0] = 7\n"
BOUND_S = 60


def program(start: str) -> str:
    """Returns the block of README whose first line begins with `start`."""
    [found] = [block.text for block in blocks.blocks(README, "README.md") if block.text.startswith(start)]
    return found


def run_pair(server: List[str], client: List[str]) -> str:
    """Runs `server serve` and `client ADDRESS`, and returns what the client prints."""
    serving = subprocess.Popen([*server, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        address = serving.stdout.readline().strip()
        done = subprocess.run(
            [*client, address], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=BOUND_S
        )
        serving.communicate("\n", timeout=BOUND_S)
        assert (serving.returncode, done.returncode) == (0, 0), f"{serving.returncode} {done.returncode}: {done.stdout}"
        return done.stdout
    finally:
        serving.kill()
        serving.wait()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    printed = run_pair(sys.argv[1:], sys.argv[1:])
    print(printed, end="")
    sys.exit(printed != EXPECTED)
