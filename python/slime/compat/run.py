"""Runs a script that imports another transfer engine, on Slime.

    python -m slime.compat.run SYSTEM SCRIPT [ARGUMENT ...]
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys

from slime import compat
from slime._errors import NotFound


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m slime.compat.run", description=__doc__.splitlines()[0])
    parser.add_argument("system", metavar="SYSTEM", help=f"what the script imports: {', '.join(compat.SYSTEMS)}")
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("arguments", metavar="ARGUMENT", nargs=argparse.REMAINDER, help="of the script")
    options = parser.parse_args()
    try:
        compat.install(options.system)
    except NotFound as error:
        parser.error(error.text)
    if not os.path.isfile(options.script):
        parser.error(f"there is no script {options.script}")
    sys.argv = [options.script, *options.arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(options.script))
    runpy.run_path(options.script, run_name="__main__")


if __name__ == "__main__":
    main()
