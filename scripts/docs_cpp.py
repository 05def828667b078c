#!/usr/bin/env python3
"""Writes the C++ reference of the documentation site: one Markdown page for each layer.

    docs_cpp.py FOLDER      FOLDER/pages gets the pages; the rest of FOLDER is what they are made from

Takes the headers that users include (PUBLIC of each slime_layer) and the headers that those include,
turns their comments into Doxygen's, runs doxygen, and writes what its XML says. Needs doxygen.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
LAYERS = ("base", "transport", "rpc", "agent", "cache", "kv", "ctrl")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
DOXYFILE = """
INPUT = headers
RECURSIVE = YES
FILE_PATTERNS = *.h
OUTPUT_DIRECTORY = .
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
EXTRACT_ALL = YES
HIDE_UNDOC_RELATIONS = YES
MARKDOWN_SUPPORT = NO
AUTOLINK_SUPPORT = NO
QUIET = YES
WARNINGS = NO
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = "SLIME_CAPABILITY(x)=" "SLIME_SCOPED_CAPABILITY=" "SLIME_GUARDED_BY(x)=" "SLIME_REQUIRES(x)=" \
  "SLIME_ACQUIRE(x)=" "SLIME_TRY_ACQUIRE(x)=" "SLIME_RELEASE(x)=" "SLIME_ASSERT_HELD(x)=" \
  "SLIME_NO_THREAD_SAFETY_ANALYSIS="
STRIP_FROM_PATH = headers
"""


def public_headers():
    """Returns the names of all headers that users get, sorted."""
    found, todo = set(), []
    for layer in LAYERS:
        [names] = re.findall(r"slime_layer\(\w+\s+PUBLIC ([^()]*?)\s+SOURCES", (ROOT / layer / "CMakeLists.txt").read_text())
        todo += [f"{layer}/{name}" for name in names.split()]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += INCLUDE.findall((ROOT / name).read_text(encoding="utf-8"))
    return sorted(found)


def comment_start(line):
    """Returns the index at which the comment of a line begins, or -1 if there is no comment.
    Ignores // inside a string."""
    inside = False
    for at, char in enumerate(line):
        if char == '"' and line[at - 1 : at] != "\\":
            inside = not inside
        elif not inside and line.startswith("//", at):
            return at
    return -1


def with_doxygen_comments(text):
    """Returns the text of a header with Doxygen's marks: /// begins comments before declarations,
    ///< begins comments behind members."""
    lines, behind = [], -1  # behind: column of the comment behind the member above; -1 if none
    for line in text.splitlines():
        at = comment_start(line)
        if at < 0:
            behind = -1
            lines.append(line)
            continue
        code, words = line[:at], re.sub(r"([\\@<>#&%])", r"\\\1", line[at + 2 :])
        if code.strip():
            behind = at
        mark = "///<" if code.strip() or at == behind else "///"
        if not code.strip() and at != behind:
            behind = -1
        lines.append(f"{code}{mark}{words}")
    return "\n".join(lines) + "\n"


def run_doxygen(folder, headers):
    shutil.rmtree(folder, ignore_errors=True)
    for name in headers:
        target = folder / "headers" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(with_doxygen_comments((ROOT / name).read_text(encoding="utf-8")), encoding="utf-8")
    (folder / "Doxyfile").write_text(DOXYFILE)
    subprocess.run(["doxygen", "Doxyfile"], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def plain(element):
    """Returns the text of an element, without markup."""
    return " ".join("".join(element.itertext()).split()) if element is not None else ""


def escaped(text):
    """Returns `text` with Markdown's special characters escaped."""
    return re.sub(r"([\\`*_<>\[\]{}|#])", r"\\\1", text)


def description(element):
    """Returns the paragraphs and lists of a member's or class's description, as Markdown."""
    parts = []
    for name in ("briefdescription", "detaileddescription"):
        found = element.find(name)
        for para in found if found is not None else ():
            items = para.findall(".//listitem")
            parts += [f"- {escaped(plain(item))}" for item in items] if items else [escaped(plain(para))]
    text = "\n\n".join(part for part in parts if part)
    return text.replace("\n\n- ", "\n- ").replace("\n- ", "\n\n- ", 1) if text else ""


def template_of(element):
    """Returns the line template<...> of a declaration; empty if it is no template."""
    parameters = element.find("templateparamlist")
    if parameters is None:
        return ""
    names = [" ".join(filter(None, (plain(each.find("type")), plain(each.find("declname"))))) for each in parameters]
    return f"template <{', '.join(names)}>\n"


def declaration(member):
    kind = member.get("kind")
    if kind == "enum":
        values = [
            f"  {plain(value.find('name'))},"
            + (f"  // {comment}" if (comment := plain_description(value)) else "")
            for value in member.findall("enumvalue")
        ]
        return f"enum class {plain(member.find('name'))} {{\n" + "\n".join(values) + "\n};"
    if kind == "define":
        names = [plain(each) for each in member.findall("param")]
        return f"#define {plain(member.find('name'))}" + (f"({', '.join(names)})" if names else "")
    type_, name = plain(member.find("type")), plain(member.find("name"))
    value = plain(member.find("initializer"))
    if kind == "typedef":
        return template_of(member) + f"using {name} = {type_};"
    return template_of(member) + " ".join(filter(None, (type_, name + plain(member.find("argsstring")), value))) + ";"


def plain_description(element):
    return plain(element.find("briefdescription")) or plain(element.find("detaileddescription"))


def is_internal(name):
    return "detail" in name.split("::") or "@" in name or name == "std" or name.startswith("std::")


def write_members(out, members, level):
    """Appends the documentation of members to `out`: all fields as one block, then each other name
    with a heading and all of its overloads."""
    fields = [member for member in members if member.get("kind") == "variable"]
    if fields:
        lines = []
        for field in fields:
            comment = plain_description(field)
            lines += [f"// {comment}"] if comment else []
            lines.append(declaration(field))
        out.append("```cpp\n" + "\n".join(lines) + "\n```\n")
    others = {}
    for member in members:
        if member.get("kind") in ("function", "typedef", "enum", "define"):
            others.setdefault(plain(member.find("name")), []).append(member)
    for name, group in others.items():
        out.append(f"{'#' * level} `{name}`\n")
        for member in group:
            out.append(f"```cpp\n{declaration(member)}\n```\n")
            if text := description(member):
                out.append(f"{text}\n")


def file_of(element):
    location = element.find("location")
    return location.get("file", "").removeprefix("headers/") if location is not None else ""


def by_header(xml):
    """Returns for each header its classes and its free members, in the order of their lines."""
    headers = {}
    for path in sorted(xml.glob("*.xml")):
        for compound in ElementTree.parse(path).getroot().findall("compounddef"):
            name, kind = plain(compound.find("compoundname")), compound.get("kind")
            if is_internal(name):
                continue
            if kind in ("class", "struct") and compound.get("prot") == "public":
                headers.setdefault(file_of(compound), {}).setdefault("classes", []).append(compound)
            elif kind in ("namespace", "file"):
                for member in compound.findall("sectiondef/memberdef"):
                    if kind == "namespace" or member.get("kind") == "define":
                        headers.setdefault(file_of(member), {}).setdefault("free", []).append(member)
    for parts in headers.values():
        for found in parts.values():
            found.sort(key=lambda each: int(each.find("location").get("line")))
    return headers


def write_page(layer, names, headers):
    out = [f"# {layer}\n"]
    for name in names:
        parts = headers.get(name, {})
        if not parts:
            continue
        out.append(f"## {name}\n")
        for compound in parts.get("classes", []):
            out.append(f"### `{plain(compound.find('compoundname'))}`\n")
            out.append(f"{description(compound)}\n")
            members = compound.findall("sectiondef/memberdef[@prot='public']")
            write_members(out, members, 4)
        if "free" in parts:
            write_members(out, parts["free"], 3)
    return "\n".join(out)


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    if shutil.which("doxygen") is None:
        print("docs: doxygen is not installed: scripts/install_deps.sh --docs", file=sys.stderr)
        return 1
    folder = pathlib.Path(arguments[0])
    names = public_headers()
    run_doxygen(folder, names)
    headers = by_header(folder / "xml")
    pages = folder / "pages"
    pages.mkdir()
    for layer in LAYERS:
        own = [name for name in names if name.startswith(f"{layer}/")]
        (pages / f"{layer}.md").write_text(write_page(layer, own, headers), encoding="utf-8")
    rows = "".join(f"| [{layer}]({layer}.md) | {', '.join(f'`{n}`' for n in names if n.startswith(layer + '/'))} |\n" for layer in LAYERS)
    (pages / "index.md").write_text(
        "# C++ reference\n\nMade from the headers that `cmake --install` installs. "
        "Most programs include `agent/peer_agent.h`.\n\n| layer | headers |\n|---|---|\n" + rows,
        encoding="utf-8",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
