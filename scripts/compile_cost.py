#!/usr/bin/env python3
"""Prints compile time and peak memory of each file of a build tree, slowest first.

Compiles every file of TREE/compile_commands.json once, without the compiler cache; the outputs go to a temporary
folder, so TREE does not change. Seconds are processor time of the compiler and its children, which depends less on the
load of the machine than wall time does. For the files shown, the preprocessor also runs alone: the report has its seconds
and the lines of its output.

Exit status: 0 done, 1 a file did not compile or (with --compare) got slower, 2 wrong usage.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

LAUNCHERS = {"ccache", "sccache", "distcc"}
SLOWER_RATIO = 1.2
SLOWER_SECONDS = 1.0
# most lines of the compiler's output that are shown for a file that does not compile
ERROR_LINES = 4


class UsageError(Exception):
    """Raised for wrong usage; the text says what to do."""


def words_of(entry):
    """Returns the words of the compile command of `entry`, without a launcher such as ccache."""
    words = entry.get("arguments") or shlex.split(entry["command"])
    while words and os.path.basename(words[0]) in LAUNCHERS:
        words = words[1:]
    return words


def redirected(words, output):
    """Returns the command with its object file and dependency file moved to `output`."""
    result, position = [], 0
    while position < len(words):
        if words[position] in ("-o", "-MF") and position + 1 < len(words):
            result += [words[position], output + (".d" if words[position] == "-MF" else "")]
            position += 2
        else:
            result.append(words[position])
            position += 1
    return result


def target_of(entry):
    """Returns the CMake target of the file, read from the object file's name; empty if unknown."""
    words = entry.get("arguments") or shlex.split(entry["command"])
    outputs = [after for before, after in zip(words, words[1:]) if before == "-o"]
    match = re.search(r"CMakeFiles/(.+)\.dir/", entry.get("output") or (outputs or [""])[0])
    return match.group(1) if match else ""


def load(tree, only):
    """Returns the (name, entry) pairs of a build tree. If a file is compiled for several targets,
    its name includes the target."""
    database = tree / "compile_commands.json"
    try:
        entries = json.loads(database.read_text())
    except FileNotFoundError:
        raise UsageError(f"no {database}: make the tree first, with `cmake --preset release` for build/release") from None
    except ValueError as error:
        raise UsageError(f"{database} is not JSON ({error}): make it again with cmake") from None
    root = pathlib.Path(__file__).resolve().parents[1]
    paths = []
    for entry in entries:
        path = pathlib.Path(os.path.normpath(os.path.join(entry["directory"], entry["file"])))
        paths.append(str(path.relative_to(root)) if path.is_relative_to(root) else str(path))
    named = [(path if paths.count(path) == 1 else f"{path} ({target_of(entry)})", entry)
             for path, entry in zip(paths, entries)]
    chosen = [(name, entry) for name, entry in named if only is None or only.search(name)]
    if not chosen:
        raise UsageError(f"no file of {database} matches --only {only.pattern}" if only else f"{database} is empty")
    return chosen


def run(words, directory, errors):
    """Runs a command to its end. Returns (exit status, processor seconds, wall seconds, peak MiB)."""
    environment = {**os.environ, "CCACHE_DISABLE": "1"}
    started = time.monotonic()
    process = subprocess.Popen(words, cwd=directory, env=environment, stdin=subprocess.DEVNULL,
                               stdout=errors, stderr=errors)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # wait4() has reaped it
    return (process.returncode, usage.ru_utime + usage.ru_stime, time.monotonic() - started, usage.ru_maxrss / 1024)


def measure(name, entry):
    """Compiles one file. Returns its figures, or its error."""
    with tempfile.TemporaryDirectory(prefix="slime-compile-cost-") as folder:
        with open(os.path.join(folder, "errors"), "w+b") as errors:
            try:
                words = redirected(words_of(entry), os.path.join(folder, "output"))
                status, seconds, wall, peak = run(words, entry["directory"], errors)
            except OSError as error:
                return {"file": name, "error": f"{error.strerror}: {error.filename}"}
            if status != 0:
                errors.seek(0)
                text = errors.read().decode(errors="replace").strip().splitlines()[:ERROR_LINES]
                return {"file": name, "error": "\n".join(text) or f"the compiler ended with status {status}"}
    return {"file": name, "seconds": round(seconds, 3), "wall_seconds": round(wall, 3), "peak_mib": round(peak, 1)}


def preprocess(entry):
    """Runs the preprocessor alone. Returns (seconds, lines without empty lines and line markers)."""
    with tempfile.TemporaryDirectory(prefix="slime-compile-cost-") as folder:
        output = os.path.join(folder, "output")
        words = ["-E" if word == "-c" else word for word in redirected(words_of(entry), output)]
        status, seconds, _, _ = run(words, entry["directory"], subprocess.DEVNULL)
        if status != 0:
            return None
        with open(output, "rb") as text:
            return round(seconds, 3), sum(1 for line in text if line.strip() and not line.startswith(b"#"))


def measure_all(entries, jobs, say):
    """Compiles and measures all files, `jobs` at a time. Ctrl-C ends this early and keeps the files
    that were finished."""
    results = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(measure, name, entry) for name, entry in entries]
        try:
            for future in concurrent.futures.as_completed(futures):
                results.append(future.result())
                say(f"\r{len(results)} of {len(futures)} files")
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            say("\ninterrupted: these are the files that were done")
    say("\n")
    return results


def slower(old, new):
    """Returns (file, old seconds, new seconds) of the files that got slower by more than both
    SLOWER_RATIO and SLOWER_SECONDS, the worst first."""
    before = {each["file"]: each["seconds"] for each in old}
    found = [(each["file"], before[each["file"]], each["seconds"]) for each in new if each["file"] in before]
    found = [each for each in found if each[2] > SLOWER_RATIO * each[1] and each[2] > SLOWER_SECONDS + each[1]]
    return sorted(found, key=lambda each: each[1] - each[2])


def table(files, top):
    """Returns the lines of the printed table: the `top` first files, and the total of all."""
    lines = [f"{'seconds':>8} {'peak MiB':>9} {'of it -E':>9} {'lines':>9}  file"]
    for each in files[:top]:
        share, count = "-", "-"
        if each.get("preprocess_seconds") is not None:
            share = f"{100 * each['preprocess_seconds'] / max(each['seconds'], 0.001):.0f} %"
            count = f"{each['lines']:,}"
        lines.append(f"{each['seconds']:8.1f} {each['peak_mib']:9.0f} {share:>9} {count:>9}  {each['file']}")
    total = sum(each["seconds"] for each in files)
    peak = max((each["peak_mib"] for each in files), default=0)
    lines.append(f"{total:8.1f} {peak:9.0f} {'':9} {'':9}  all {len(files)} files")
    return lines


def compare(path, files):
    """Prints the files that got slower since an earlier --json FILE. Returns whether any did."""
    try:
        old = json.loads(pathlib.Path(path).read_text())["files"]
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"--compare {path}: not a file that --json wrote ({error})") from None
    found = slower(old, files)
    bars = f"more than {100 * (SLOWER_RATIO - 1):.0f} % and {SLOWER_SECONDS:.0f} s slower than in {path}"
    print(f"\n{len(found)} files are {bars}" + (":" if found else ""))
    for name, before, after in found:
        print(f"  {before:.1f} s -> {after:.1f} s  {name}")
    return bool(found)


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=pathlib.Path, help="a build tree with compile_commands.json, such as build/release")
    parser.add_argument("--only", type=re.compile, metavar="PATTERN",
                        help="only files whose names match this regular expression")
    parser.add_argument("--top", type=int, default=20, help="how many files to show (default 20; 0: all)")
    parser.add_argument("--jobs", type=int, default=1, help="compilers at a time (default 1: the figures vary least)")
    parser.add_argument("--json", metavar="FILE", help="write the figures of all files there")
    parser.add_argument("--compare", metavar="OLD.json", help="list the files that got more than 20 %% and 1 s slower "
                        "since that --json file was written")
    options = parser.parse_args(arguments)
    if options.jobs < 1 or options.top < 0:
        parser.error("--jobs takes 1 or more, --top 0 or more")
    return options


def main(arguments):
    options = parse(arguments)
    try:
        entries = load(options.tree, options.only)
        progress = sys.stderr.isatty()
        results = measure_all(entries, options.jobs, lambda text: progress and print(text, end="", file=sys.stderr))
        files = sorted((each for each in results if "error" not in each), key=lambda each: -each["seconds"])
        top = options.top or len(files)
        by_name = dict(entries)
        for each in files[:top]:
            each["preprocess_seconds"], each["lines"] = preprocess(by_name[each["file"]]) or (None, None)
        print("\n".join(table(files, top)))
        failed = [each for each in results if "error" in each]
        for each in failed:
            print(f"{each['file']} does not compile; were its generated sources built?\n{each['error']}", file=sys.stderr)
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps({"files": files, "failed": failed}, indent=1) + "\n")
        got_slower = compare(options.compare, files) if options.compare else False
    except UsageError as error:
        print(f"compile_cost.py: {error}", file=sys.stderr)
        return 2
    return 1 if failed or got_slower else 0


if __name__ == "__main__":
    # a shell starts background jobs with SIGINT ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
