"""transfer_bench of the Slime Transfer Engine: `slime bench transfer`, which has its flags and its table."""

from __future__ import annotations

import os
import sys

from slime._errors import NotFound
from slime.compat import _common


def main() -> None:
    try:
        program = _common.program("slime")
    except NotFound as error:
        sys.exit(f"transfer_bench: {error.text}")
    os.execv(program, [program, "bench", "transfer", *sys.argv[1:]])


if __name__ == "__main__":
    main()
