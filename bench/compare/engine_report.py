#!/usr/bin/env python3
"""Makes tables of what `engines.py --json` measured: a row for each list of blocks, a column for each engine.

    engine_report.py FILE                               prints the tables
    engine_report.py FILE --into docs/benchmarks.md     puts them between <!-- engines: begin --> and <!-- engines: end -->

One block: p50; a list: GB/s. Below it: the processor's time for each GiB, and the bars that were missed.
Exit status: 0 done; 2 wrong options, or a file that cannot be read or written.
"""

import argparse
import json
import pathlib
import sys

import present

# How the engines are called above the columns.
NAMES = {"nixl-ucx": "NIXL, UCX", "nixl-slime-shm": "NIXL, SLIME, shm", "slime-shm": "Slime, shm",
         "slime-shm-own": "Slime, shm, own memory", "nixl-ucx-tcp": "NIXL, UCX, tcp", "nixl-slime-tcp": "NIXL, SLIME, tcp",
         "slime-tcp": "Slime, tcp", "slime-tcp-own": "Slime, tcp, own memory", "mooncake": "Mooncake, tcp",
         "dlslime": "DLSlime, tcp"}
FIGURES = {"p50_us": "p50", "gb_per_s": "GB/s", "cpu_s_per_gib": "processor's time"}


def read(path: pathlib.Path) -> dict:
    try:
        report = json.loads(path.read_text())
        for figure in report["figures"]:
            float(figure["p50_us"]), float(figure["gb_per_s"]), float(figure["cpu_s_per_gib"]), str(figure["case"])
        for bar in report["bars"]:
            float(bar["limit"]), float(bar["ratio"]), [float(ratio) for ratio in bar["ratios"]], bool(bar["met"])
        if not report["figures"]:
            raise ValueError("no figures")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise present.Wrong(f"{path}: not a report of engines.py: {error}") from None
    return report


def moved(figure: dict) -> str:
    if not figure["case"].endswith("x1"):
        return f"{figure['gb_per_s']:.3g} GB/s"
    return f"{figure['p50_us']:.3g} us" if figure["p50_us"] < 1000 else f"{figure['p50_us'] / 1000:.3g} ms"


def seconds(figure: dict) -> str:
    return f"{figure['cpu_s_per_gib']:.2g}" if figure["cpu_s_per_gib"] < 10 else f"{figure['cpu_s_per_gib']:.0f}"


def matrix(report: dict, text) -> str:
    engines = [name for name in NAMES if any(figure["engine"] == name for figure in report["figures"])]
    cells = {(figure["case"], figure["engine"]): text(figure) for figure in report["figures"]}
    lines = ["| | " + " | ".join(NAMES[name] for name in engines) + " |", "|---" * (len(engines) + 1) + "|"]
    for case in dict.fromkeys(figure["case"] for figure in report["figures"]):
        lines.append(f"| {case} | " + " | ".join(cells.get((case, name), "") for name in engines) + " |")
    return "\n".join(lines)


def missed(report: dict) -> str:
    bars = [bar for bar in report["bars"] if not bar["met"]]
    met = f"{len(report['bars']) - len(bars)} of {len(report['bars'])} bars are met."
    if not bars:
        return met
    lines = [met + " These are not:", "", "| | engine | beside | of what | bar | ratio | of the rounds |", "|---" * 7 + "|"]
    for bar in bars:
        least, most = min(bar["ratios"]), max(bar["ratios"])
        lines.append(f"| {bar['case']} | {NAMES.get(bar['engine'], bar['engine'])} | "
                     f"{NAMES.get(bar['beside'], bar['beside'])} | {FIGURES.get(bar['figure'], bar['figure'])} | "
                     f"{'at most' if bar['at_most'] else 'at least'} {bar['limit']:g} | {bar['ratio']:.3g} | "
                     f"{least:.3g} to {most:.3g} |")
    return "\n".join(lines)


def tables(report: dict) -> str:
    return "\n\n".join([matrix(report, moved), "Seconds of a processor for each GiB, of both processes:",
                        matrix(report, seconds), missed(report)])


def main(arguments) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--into", type=pathlib.Path, metavar="PAGE")
    options = parser.parse_args(arguments)
    try:
        text = tables(read(options.file))
        if options.into is None:
            print(text)
        else:
            present.put_into(options.into, "engines", text)
    except present.Wrong as error:
        print(f"engine_report.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
