#!/usr/bin/env python3
"""Checks that programs need no RDMA library to start: libibverbs is loaded at run time, if installed.

    check_linkage.py PROGRAM_OR_FOLDER...     of a folder every program and library in it
"""

import pathlib
import re
import subprocess
import sys

RDMA = re.compile(r"lib(ibverbs|rdmacm|mlx\d|efa|ibumad)")


def needed(program):
    """Returns the libraries in the program's own dynamic section."""
    text = subprocess.run(["readelf", "--dynamic", "--wide", program], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", text)


def is_elf(path):
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def programs(arguments):
    for argument in map(pathlib.Path, arguments):
        if argument.is_dir():
            yield from (path for path in sorted(argument.rglob("*")) if path.is_file() and is_elf(path))
        else:
            yield argument


def main():
    all_programs = list(programs(sys.argv[1:]))
    failed = not all_programs
    for program in all_programs:
        libraries = needed(program)
        rdma = [library for library in libraries if RDMA.match(library)]
        # Each program needs the C library; a list without it was not parsed.
        if not any(library.startswith("libc.so") for library in libraries):
            print(f"{program}: no list of libraries found: {libraries}")
            failed = True
        elif rdma:
            print(f"{program}: needs {', '.join(rdma)}; it would not start on a machine without RDMA")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
