#!/usr/bin/env python3
"""Reports the instructions of an operation at both ends together, counted by callgrind.

    count.py PROGRAM [OPERATION...]

PROGRAM is test_instructions, OPERATION one of its cases (default: all of REFERENCE). Set-up is not counted: the figure is
the difference of two runs. The fake fabric is counted separately; operations whose names end in _shm do not use it.
The figures are a report, not a gate: compilers change them as much as we do. Exit status: 0, or 77 without valgrind."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

FEW, MANY = 1000, 3000
# Instructions of each operation with GCC 12. Lower the number when you shorten a path.
REFERENCE = {"echo": 7250, "echo_shm": 7500, "echoes_shm": 5900, "read": 2200, "notify": 4050,
             "agent_echo_shm": 11400, "agent_echoes_shm": 8200, "agent_writes_shm": 2500}
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
    parser.add_argument("operations", nargs="*", default=list(REFERENCE))
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None or shutil.which("callgrind_annotate") is None:
        print("SKIPPED: no valgrind; scripts/install_deps.sh --test installs it")
        return 77
    for operation in arguments.operations:
        with tempfile.TemporaryDirectory() as folder:
            few, many = (inclusive(arguments.program, operation, count, folder) for count in (FEW, MANY))
        total, fabric = ((many[i] - few[i]) // (MANY - FEW) for i in range(2))
        if total <= fabric or (fabric <= 0) != operation.endswith("_shm"):
            sys.exit(f"{operation}: the fabric's share could not be told apart: were its functions renamed?")
        print(f"{operation}: {total - fabric} instructions, both ends (reference {REFERENCE.get(operation, 'none')}; "
              f"{fabric} of the fake fabric)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
