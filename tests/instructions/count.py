#!/usr/bin/env python3
"""How many instructions an echo call takes, both ends together, counted by callgrind: compared with a bound.

    count.py PROGRAM [--bound N]

PROGRAM is test_instructions_echo. What it does once is not counted: the difference of two runs is. The fake fabric's
own work is counted apart. Exit status: 0 within the bound, 1 above it, 77 without valgrind."""

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


def inclusive(program, calls, folder):
    """The instructions of a whole run, and of them those inside the fake fabric."""
    out = os.path.join(folder, str(calls))
    environment = dict(os.environ, SLIME_INSTRUCTIONS_CALLS=str(calls))
    run = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", program], env=environment,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
    if run.returncode != 0:
        sys.exit(f"{program} under callgrind ended with {run.returncode}:\n{run.stdout}")
    text = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", out], check=True,
                          stdout=subprocess.PIPE, text=True, timeout=240).stdout
    total = fabric = 0
    for count, name in re.findall(r"^\s*([\d,]+) \([ \d.]+%\)\s+(.*)$", text, re.MULTILINE):
        number = int(count.replace(",", ""))
        total = max(total, number) if "PROGRAM TOTALS" in name else total
        if any(f"(anonymous namespace)::{function}(" in name for function in FABRIC):
            fabric += number
    return total, fabric


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--bound", type=int, help="instructions of a call without the fabric's; without: only print")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None or shutil.which("callgrind_annotate") is None:
        print("SKIPPED: no valgrind; scripts/install_deps.sh --test installs it")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        few, many = (inclusive(arguments.program, calls, folder) for calls in (FEW, MANY))
    total, fabric = ((many[i] - few[i]) // (MANY - FEW) for i in range(2))
    print(f"instructions of a call, both ends: {total - fabric} (and {fabric} of the fake fabric)")
    if total <= fabric or fabric <= 0:
        sys.exit("the fabric's share could not be told apart: were its functions renamed?")
    if arguments.bound is not None and total - fabric > arguments.bound:
        print(f"that is more than {arguments.bound}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
