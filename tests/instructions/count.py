#!/usr/bin/env python3
"""How many instructions one operation takes, both ends together, counted by callgrind: compared with a bound.

    count.py PROGRAM OPERATION [--bound N]

PROGRAM is test_instructions, OPERATION one of its cases. What it does once is not counted: the difference of two runs is. The fake fabric's
own work is counted apart; an operation whose name ends in _shm uses none. Exit status: 0 within the bound, 1 above it, 77 without valgrind."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

FEW, MANY = 1000, 3000
# The calls of libibverbs' table, behind which everything is the fake's.
FABRIC = ("post_send", "post_srq_recv", "poll_cq")


def inclusive(program, operation, count, folder):
    """The instructions of a whole run, and of them those inside the fake fabric."""
    out = os.path.join(folder, str(count))
    environment = dict(os.environ, SLIME_INSTRUCTIONS_COUNT=str(count))
    run = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", program,
                          f"--test-case={operation}"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         text=True, timeout=240)
    if run.returncode != 0 or " 1 passed | 0 failed" not in run.stdout:
        sys.exit(f"{program} under callgrind ended with {run.returncode}:\n{run.stdout}")
    text = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", out], check=True,
                          stdout=subprocess.PIPE, text=True, timeout=240).stdout
    total = fabric = 0
    for instructions, name in re.findall(r"^\s*([\d,]+) \([ \d.]+%\)\s+(.*)$", text, re.MULTILINE):
        number = int(instructions.replace(",", ""))
        total = max(total, number) if "PROGRAM TOTALS" in name else total
        if any(f"(anonymous namespace)::{function}(" in name for function in FABRIC):
            fabric += number
    return total, fabric


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("operation")
    parser.add_argument("--bound", type=int, help="instructions without the fabric's; without: only print")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None or shutil.which("callgrind_annotate") is None:
        print("SKIPPED: no valgrind; scripts/install_deps.sh --test installs it")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        few, many = (inclusive(arguments.program, arguments.operation, count, folder) for count in (FEW, MANY))
    total, fabric = ((many[i] - few[i]) // (MANY - FEW) for i in range(2))
    print(f"instructions of one {arguments.operation}, both ends: {total - fabric} (and {fabric} of the fake fabric)")
    if total <= fabric or (fabric <= 0) != arguments.operation.endswith("_shm"):
        sys.exit("the fabric's share could not be told apart: were its functions renamed?")
    if arguments.bound is not None and total - fabric > arguments.bound:
        print(f"that is more than {arguments.bound}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
