#!/usr/bin/env python3
"""Checks the spelling, and the width of prose and comments.

    check_prose.py spelling|columns [ROOT]
    check_prose.py columns --count [ROOT]      prints the numbers for known_columns.json
    check_prose.py columns --list FOLDER [ROOT]

spelling: runs codespell over all files that git tracks; spelling_ignored.txt has the words to ignore.
columns: counts for each top-level folder the lines of prose (Markdown outside tables and code, and
lines that are a comment) with more than 100 columns. known_columns.json has the numbers that are
left; a folder may have fewer, never more. Prints one line for each finding and exits 1 if there is
any. Exits 77 where codespell is not installed.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
KNOWN = HERE / "known_columns.json"
IGNORED_WORDS = HERE / "spelling_ignored.txt"
MAX_COLUMNS = 100
COMMENTS = {
    **dict.fromkeys((".h", ".cc"), "//"),
    **dict.fromkeys((".py", ".sh", ".cmake", ".yml", ".yaml", ".toml"), "#"),
}
# Test data and pictures, not prose.
NO_TEXT = re.compile(r"^tests/(fuzz/corpus|rpc/golden)/|\.(svg|png)$")


def tracked(root):
    """Returns the names of the tree's files, including new files that git does not ignore."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode().split("\0")
    return sorted(name for name in set(names) if name and not NO_TEXT.search(name) and (root / name).is_file())


def prose_of_markdown(lines):
    """Returns numbers and texts of lines outside code blocks and tables, without lines that are only a link."""
    fence = ""
    for number, line in enumerate(lines, 1):
        stripped = line.lstrip()
        marker = re.match(r"```+|~~~+", stripped)
        if marker and (not fence or stripped.startswith(fence)):
            fence = "" if fence else marker.group()
        elif not fence and not line.startswith("    ") and not stripped.startswith("|"):
            yield number, line


def prose(name, text):
    lines = text.splitlines()
    suffix = pathlib.PurePosixPath(name).suffix
    if suffix == ".md":
        yield from prose_of_markdown(lines)
    elif suffix in COMMENTS or name.endswith("CMakeLists.txt"):
        mark = COMMENTS.get(suffix, "#")
        for number, line in enumerate(lines, 1):
            if line.lstrip().startswith(mark):
                yield number, line


def wide_lines(root):
    """Returns the lines that are too wide, as (folder, name, number)."""
    for name in tracked(root):
        text = (root / name).read_text(encoding="utf-8", errors="replace")
        folder = name.split("/")[0] if "/" in name else "."
        for number, line in prose(name, text):
            # A URL cannot be wrapped.
            if len(line) > MAX_COLUMNS and not re.search(r"https?://\S{40,}", line):
                yield folder, name, number


def counts(root):
    found = {}
    for folder, _, _ in wide_lines(root):
        found[folder] = found.get(folder, 0) + 1
    return dict(sorted(found.items()))


def check_columns(root, known):
    """Returns a problem for each folder with more wide lines than the known number."""
    for folder, count in counts(root).items():
        if count > known.get(folder, 0):
            yield (
                f"{folder}: {count} lines of prose have more than {MAX_COLUMNS} columns, {known.get(folder, 0)} are "
                f"known; list them: check_prose.py columns --list {folder}"
            )


def codespell():
    for program in (shutil.which("codespell"), HERE.parents[1] / ".venv/bin/codespell"):
        if program and pathlib.Path(program).exists():
            return str(program)
    return None


def check_spelling(root):
    command = [codespell(), "--ignore-words", str(IGNORED_WORDS), *tracked(root)]
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    yield from done.stdout.splitlines()
    if done.returncode not in (0, 65):
        yield f"codespell: exit status {done.returncode}: {done.stderr.strip()}"


def main(arguments):
    check, *rest = arguments or [""]
    option = rest.pop(0) if rest and rest[0].startswith("--") else ""
    listed = rest.pop(0) if option == "--list" and rest else ""
    if check not in ("spelling", "columns") or option not in ("", "--count", "--list") or len(rest) > 1:
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(rest[0] if rest else HERE.parents[1]).resolve()
    if option == "--count":
        print(json.dumps(counts(root), indent=2))
        return 0
    if option == "--list":
        print("\n".join(f"{name}:{number}" for folder, name, number in wide_lines(root) if folder == listed))
        return 0
    if check == "spelling" and codespell() is None:
        print("skipped: codespell is not installed")
        return 77
    findings = list(check_spelling(root) if check == "spelling" else check_columns(root, json.loads(KNOWN.read_text())))
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
