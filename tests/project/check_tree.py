#!/usr/bin/env python3
"""Checks what the compiler does not check: include arrows, headers, file length, format.

    check_tree.py arrows|text|format [ROOT]

Prints one line for each finding and exits 1 if there is any.
"""

import pathlib
import re
import shutil
import subprocess
import sys

# The layers whose headers each layer may include. A layer without a row includes no other layer.
LAYERS = {
    "base": {"base"},
    "transport": {"base", "transport"},
    "rpc": {"base", "transport", "rpc"},
    "ctrl": {"base", "ctrl"},
    "agent": {"base", "transport", "rpc", "ctrl", "agent"},
    "cache": {"base", "transport", "rpc", "ctrl", "agent", "cache"},
    "kv": {"base", "transport", "rpc", "ctrl", "agent", "kv"},
}
EVERY_LAYER = set(LAYERS)
PROGRAMS = {
    "bench": EVERY_LAYER | {"bench"},
    "cli": EVERY_LAYER | {"bench", "cli"},
    "python": EVERY_LAYER | {"python"},
    "examples": EVERY_LAYER | {"examples"},
    "integrations": EVERY_LAYER | {"integrations"},
    "tests": EVERY_LAYER | {"bench", "cli", "integrations", "tests"},
}
ARROWS = {**LAYERS, **PROGRAMS}

# The parts of transport: the engine knows none of its wires, and the wires not each other. What
# endpoints of all providers are made of is in endpoint. The parts of the loop are in loop; its
# header alone knows them.
TRANSPORT_PARTS = {
    "endpoint": {"endpoint"},
    "loop": {"loop"},
    "soft": {"endpoint", "soft"},
    "sim": {"soft", "sim"},
    "tcp": {"soft", "tcp"},
    "shm": {"soft", "shm"},
    "verbs": {"endpoint", "verbs"},
}

# Not allowed in any header of a layer, so that neither users nor other layers compile them.
HEAVY = re.compile(
    r"^(infiniband/|rdma/|nlohmann/|httplib|Python\.h|nanobind/|pybind11/|spdlog/|fmt/|CLI/|openssl/|sqlite3|hiredis/|prometheus/|msgpack)"
)
# Headers that may include msgpack: the codec's templates need them for users' types.
MSGPACK_HEADERS = {"rpc/msgpack_types.h"}
# Private headers of one layer, with the heavy headers that they may include. No other header may
# include them.
PRIVATE_HEADERS = {
    "ctrl/store/record_text.h": (),
    "ctrl/wire/json_fields.h": ("nlohmann/",),
    "ctrl/wire/body_parts.h": ("nlohmann/",),
}

# Sources of other layers that include a private header all the same.
GUESTS = {
    ("cache/http_directory.cc", "ctrl/wire/json_fields.h"),  # bounds the JSON of strangers as nanoctrl does
}

# Internal headers of one part of a layer, which may include heavy headers; no public header may
# include them.
PART_HEADERS = {
    "transport/verbs/": ("infiniband/",),
}

SOURCE_SUFFIXES = {".h", ".cc"}
TEXT_SUFFIXES = SOURCE_SUFFIXES | {
    *(".py", ".pyi", ".sh", ".cmake", ".txt", ".md", ".toml", ".json", ".yml", ".html", ".css", ".js")
}
SKIPPED_FOLDERS = {"build", "dist", "__pycache__", ".git", ".venv", ".cache", ".pytest_cache"}
MAX_LINES = 600
# Threads of agents start through base/thread.h, which keeps fork() out meanwhile.
THREAD_START = re.compile(r"std::thread[({]\s*[^)}\s]|\bpthread_create\(")
THREAD_LAYERS = {*LAYERS, "python"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def files(root, suffixes):
    for path in sorted(root.iterdir()):
        if path.name in SKIPPED_FOLDERS or path.name.endswith(".egg-info"):
            continue
        if path.is_dir():
            yield from files(path, suffixes)
        elif path.suffix in suffixes:
            yield path


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def transport_part(name):
    parts = name.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "transport" else ""


def check_own_include(name, target, root):
    """Returns why the file `name` may not include our header `target`; empty if it may."""
    room, other = name.split("/")[0], target.split("/")[0]
    if room == "tests" and "/" not in target and (root / name).parent.joinpath(target).is_file():
        return ""  # helpers shared by the tests of one layer
    if not (root / target).is_file() or "/" not in target:
        return "no such file; includes start at the root of the tree"
    if other not in ARROWS.get(room, set()):
        return f"{room} may include {', '.join(sorted(ARROWS.get(room, set())))} only"
    part, other_part = transport_part(name), transport_part(target)
    if part and other_part and other_part not in TRANSPORT_PARTS.get(part, {part}):
        return f"transport/{part} may not know transport/{other_part}"
    if name.endswith(".h") and room == "transport" and not part and other_part and name != f"transport/{other_part}.h":
        return "a public header of transport may not know one of its parts"
    if name.endswith(".h") and target in PRIVATE_HEADERS and name not in PRIVATE_HEADERS:
        return "that header is private to its layer's sources"
    if room in LAYERS and name.endswith(".h"):
        for folder in PART_HEADERS:
            if target.startswith(folder) and not name.startswith(folder):
                return "a header that shows what its part is made of: include it in the source that needs it"
    if room in LAYERS and room != other and target in PRIVATE_HEADERS and (name, target) not in GUESTS:
        return "that header is private to its layer"
    return ""


def check_foreign_include(name, target):
    room = name.split("/")[0]
    if room not in LAYERS or not name.endswith(".h") or not HEAVY.match(target):
        return ""
    if name in MSGPACK_HEADERS and target.startswith("msgpack"):
        return ""
    if any(target.startswith(allowed) for allowed in PRIVATE_HEADERS.get(name, ())):
        return ""
    for folder, allowed in PART_HEADERS.items():
        if name.startswith(folder) and target.startswith(allowed):
            return ""
    return "not in a header: include it in the source that needs it"


def check_arrows(root):
    for path in files(root, SOURCE_SUFFIXES):
        name = path.relative_to(root).as_posix()
        for number, own, target in includes(path):
            why = check_own_include(name, target, root) if own else check_foreign_include(name, target)
            if why:
                yield f"{name}:{number}: includes {target}: {why}"
        if path.suffix == ".h" and "#pragma once" not in path.read_text(encoding="utf-8"):
            yield f"{name}:1: a header without #pragma once"


def starts_a_thread(name, suffix, line):
    if suffix not in SOURCE_SUFFIXES or name == "base/thread.h" or name.split("/")[0] not in THREAD_LAYERS:
        return False
    return THREAD_START.search(line.split("//")[0]) is not None


def check_text(root):
    for path in files(root, TEXT_SUFFIXES):
        name = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8")
        lines = text.split("\n")
        if path.suffix not in {".md", ".json", ".pyi"} and len(lines) - 1 > MAX_LINES:
            yield f"{name}:{len(lines) - 1}: longer than {MAX_LINES} lines: split it"
        if text and not text.endswith("\n"):
            yield f"{name}:{len(lines)}: no newline at the end"
        for number, line in enumerate(lines, 1):
            if line != line.rstrip():
                yield f"{name}:{number}: white space at the end of the line"
            if "\t" in line:
                yield f"{name}:{number}: a tab"
            if starts_a_thread(name, path.suffix, line):
                yield f"{name}:{number}: starts a thread: use make_thread() of base/thread.h"


def clang_format():
    """Returns the formatter of the tree's version, since other versions differ in details; None if missing."""
    for program in ("clang-format-14", "clang-format"):
        found = shutil.which(program)
        if found and " 14." in subprocess.run([found, "--version"], capture_output=True, text=True).stdout:
            return found
    return None


def check_format(root):
    program = clang_format()
    sources = [str(path) for path in files(root, SOURCE_SUFFIXES)]
    if not sources:
        return
    result = subprocess.run([program, "--dry-run", "--Werror", *sources], capture_output=True, text=True)
    if result.returncode != 0:
        for line in result.stderr.splitlines():
            if "error:" in line:
                yield line.replace(f"{root}/", "")


def main(arguments):
    checks = {"arrows": check_arrows, "text": check_text, "format": check_format}
    if not arguments or arguments[0] not in checks or len(arguments) > 2:
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(arguments[1] if len(arguments) > 1 else pathlib.Path(__file__).parents[2]).resolve()
    if arguments[0] == "format" and clang_format() is None:
        print("skipped: clang-format 14 is not installed")
        return 77
    findings = list(checks[arguments[0]](root))
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
