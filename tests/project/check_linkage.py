#!/usr/bin/env python3
"""Checks that programs need no RDMA library to start: libibverbs is loaded at run time, where there is one.

    check_linkage.py PROGRAM...
"""

import re
import subprocess
import sys

RDMA = re.compile(r"lib(ibverbs|rdmacm|mlx\d|efa|ibumad)")


def needed(program):
    """The libraries that the program's own dynamic section names."""
    text = subprocess.run(["readelf", "--dynamic", "--wide", program], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", text)


def main():
    failed = len(sys.argv) < 2
    for program in sys.argv[1:]:
        libraries = needed(program)
        rdma = [library for library in libraries if RDMA.match(library)]
        # Every program of ours needs the C library; a list without it was not read.
        if not any(library.startswith("libc.so") for library in libraries):
            print(f"{program}: no list of libraries found: {libraries}")
            failed = True
        elif rdma:
            print(f"{program}: needs {', '.join(rdma)}; it would not start on a machine without RDMA")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
