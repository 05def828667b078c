#!/usr/bin/env python3
"""Checks the spelling, the width of prose and comments, and comments for words that name nothing.

    check_prose.py spelling|columns|words [ROOT]
    check_prose.py columns|words --count [ROOT]    prints the numbers for known_CHECK.json
    check_prose.py columns|words --list [FOLDER [ROOT]]

spelling: runs codespell over all files that git tracks; spelling_ignored.txt has the words to ignore.
columns: counts for each top-level folder the lines of prose (Markdown outside tables and code, and
lines that are a comment) with more than 100 columns.
words: counts for each top-level folder the lines of C++ and Python whose comment or docstring has a
word of UNNAMED instead of a name. The aim is 40 in the whole tree.
known_columns.json and known_words.json have the numbers that are left; a folder may have fewer,
never more. Prints one line for each finding and exits 1 if there is any. Exits 77 where codespell is
not installed.
"""

import io
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tokenize

HERE = pathlib.Path(__file__).resolve().parent
IGNORED_WORDS = HERE / "spelling_ignored.txt"
MAX_COLUMNS = 100
COMMENTS = {
    **dict.fromkeys((".h", ".cc"), "//"),
    **dict.fromkeys((".py", ".sh", ".cmake", ".yml", ".yaml", ".toml"), "#"),
}
UNNAMED = re.compile(r"\b(who|whoever|whichever|nobody|somebody)\b", re.IGNORECASE)
# The comment of a line of C++ is group 1: what follows the first // outside a literal.
CPP_COMMENT = re.compile(r"""^(?:[^"'/]|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|'|/(?!/))*//(.*)$""")
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


def wide_lines(name, text):
    """Returns the numbers of the lines that are too wide."""
    for number, line in prose(name, text):
        # A URL cannot be wrapped.
        if len(line) > MAX_COLUMNS and not re.search(r"https?://\S{40,}", line):
            yield number


def comments_of_python(text):
    """Returns numbers and texts of comments and of the lines of docstrings."""
    starts_statement = True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
        elif token.type == tokenize.STRING and starts_statement:
            yield from enumerate(token.string.splitlines(), token.start[0])
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            starts_statement = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def comments_of_cpp(text):
    for number, line in enumerate(text.splitlines(), 1):
        match = CPP_COMMENT.match(line)
        if match:
            yield number, match.group(1)


def unnamed_lines(name, text):
    """Returns the numbers of the lines of C++ and Python with a comment that names nothing."""
    suffix = pathlib.PurePosixPath(name).suffix
    if UNNAMED.search(text) is None:
        return
    found = ()
    if suffix in (".h", ".cc"):
        found = comments_of_cpp(text)
    elif suffix in (".py", ".pyi"):
        found = comments_of_python(text)
    yield from sorted({number for number, comment in found if UNNAMED.search(comment)})


# For each check with known numbers: what finds its lines, and what is wrong with them.
COUNTED = {
    "columns": (wide_lines, f"lines of prose have more than {MAX_COLUMNS} columns"),
    "words": (unnamed_lines, "lines of comment say who, whoever, whichever, nobody or somebody"),
}


def places(check, root):
    """Returns the lines that a check finds, as (folder, name, number)."""
    find, _ = COUNTED[check]
    for name in tracked(root):
        text = (root / name).read_text(encoding="utf-8", errors="replace")
        folder = name.split("/")[0] if "/" in name else "."
        for number in find(name, text):
            yield folder, name, number


def counts(check, root):
    found = {}
    for folder, _, _ in places(check, root):
        found[folder] = found.get(folder, 0) + 1
    return dict(sorted(found.items()))


def check_counts(check, root, known):
    """Returns a problem for each folder with more lines than the known number."""
    _, problem = COUNTED[check]
    for folder, count in counts(check, root).items():
        if count > known.get(folder, 0):
            yield (
                f"{folder}: {count} {problem}, {known.get(folder, 0)} are known; "
                f"list them: check_prose.py {check} --list {folder}"
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


def print_counted(check, option, listed, root):
    if option == "--count":
        print(json.dumps(counts(check, root), indent=2))
        return
    found = [f"{name}:{number}" for folder, name, number in places(check, root) if listed in ("", folder)]
    print("\n".join([*found, f"{len(found)} {COUNTED[check][1]}"]))


def main(arguments):
    check, *rest = arguments or [""]
    option = rest.pop(0) if rest and rest[0].startswith("--") else ""
    listed = rest.pop(0) if option == "--list" and rest else ""
    known_options = ("", "--count", "--list") if check in COUNTED else ("",)
    if check not in ("spelling", *COUNTED) or option not in known_options or len(rest) > 1:
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(rest[0] if rest else HERE.parents[1]).resolve()
    if option:
        print_counted(check, option, listed, root)
        return 0
    if check == "spelling" and codespell() is None:
        print("skipped: codespell is not installed")
        return 77
    if check == "spelling":
        findings = list(check_spelling(root))
    else:
        findings = list(check_counts(check, root, json.loads((HERE / f"known_{check}.json").read_text())))
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
