"""Checks reports of `slime bench --json` with --to: `bench_reports.py PROVIDER SERVER FILE...`.

Each file is one object, measured over PROVIDER against SERVER, with the right bytes and figures above
0 in every row. Prints a line for each row.
"""

import json
import pathlib
import sys

FIGURES = {"rpc": ("p50_us", "ops_per_s"), "bulk": ("gb_per_s",), "blocks": ("gb_per_s", "p50_us"),
           "notify": ("p50_us",), "p2p": ("gbps", "latency_us"), "transfer": ("trips", "throughput_mib_s")}


def check(path: str, provider: str, server: str) -> None:
    report = json.loads(pathlib.Path(path).read_text())
    for fact, wanted in (("provider", provider), ("to", server), ("verified", True)):
        if report[fact] != wanted:
            sys.exit(f"{path}: {fact} is {report[fact]!r}, not {wanted!r}")
    for machine in ("machine", "server_machine"):
        if not report[machine]["cpu"]:
            sys.exit(f"{path}: {machine} has no processor")
    rows = report.get("rows", [report])
    if not rows:
        sys.exit(f"{path}: no rows")
    for row in rows:
        figures = {name: row[name] for name in FIGURES[report["bench"]]}
        print(path, row.get("operation", ""), row.get("size", row.get("block_size")),
              *(f"{name} {value:.4g}" for name, value in figures.items()))
        if not all(value > 0 for value in figures.values()):
            sys.exit(f"{path}: a figure is not above 0")


for each in sys.argv[3:]:
    check(each, *sys.argv[1:3])
