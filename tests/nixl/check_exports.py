#!/usr/bin/env python3
"""Checks that NIXL's plugin exports what NIXL looks for, and nothing else.

    check_exports.py NM LIBRARY
"""

import subprocess
import sys

EXPORTS = {"nixl_plugin_init", "nixl_plugin_fini"}


def main(nm, library):
    output = subprocess.run([nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    found = {line.split()[-1].split("@")[0] for line in output.splitlines() if line.strip()}
    for name in sorted(EXPORTS - found):
        print(f"{library} does not export {name}")
    for name in sorted(found - EXPORTS):
        print(f"{library} exports {name}: hide it")
    return 0 if found == EXPORTS else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
