#!/usr/bin/env python3
"""Measures the shape of the C++ and Python sources: large classes, and functions that exist twice.

    scripts/shape.py [--classes N] [--json] [FOLDER ...]

Reads the .h, .cc and .py files of the folders (default: all layers and programs). Needs tree_sitter and
tree_sitter_cpp, which .venv has (scripts/lib.sh: make_venv --test).

A class is too large with more than 60 methods or 35 data members. Overloads, constructors and operators
count as methods; static constants and nested types do not count as members. A struct without methods (a plain
record, such as options) may have any number of members.

Two functions are the same if they have 10 lines or more and differ only in names: after each name is replaced
by the number of its first use, their tokens are equal. Literals count as they are.

Exit status: 0 nothing found, 1 a class is too large or a function exists twice, 2 wrong usage.
"""

import argparse
import ast
import collections
import dataclasses
import json
import pathlib
import re
import sys

MOST_METHODS = 60
MOST_MEMBERS = 35
CLONE_LINES = 10
FOLDERS = "base transport rpc ctrl agent cache kv integrations cli bench python examples scripts".split()
ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMES = {"identifier", "field_identifier", "type_identifier", "namespace_identifier", "statement_identifier"}
# Lock annotations of base/mutex.h, which the parser would take for functions.
LOCK_MARKS = re.compile(
    rb"\bSLIME_(?:(?:GUARDED_BY|REQUIRES|ACQUIRE|TRY_ACQUIRE|RELEASE|ASSERT_HELD|CAPABILITY)\([^()]*\)"
    rb"|SCOPED_CAPABILITY|NO_THREAD_SAFETY_ANALYSIS)"
)
FUNCTION_NAMES = {"identifier", "field_identifier", "destructor_name", "operator_name", "operator_cast"}


@dataclasses.dataclass
class Class:
    name: str
    file: str
    line: int
    keyword: str
    methods: int = 0
    members: int = 0

    def too_large(self):
        plain = self.keyword == "struct" and self.methods == 0
        return self.methods > MOST_METHODS or (self.members > MOST_MEMBERS and not plain)


@dataclasses.dataclass
class Function:
    name: str
    file: str
    line: int
    lines: int
    tokens: tuple


def cpp_parser():
    try:
        import tree_sitter
        import tree_sitter_cpp
    except ImportError as error:
        sys.exit(f"shape.py: {error}: run it with .venv/bin/python (scripts/test.sh makes .venv)")
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))


def cpp_tree(parser, source):
    """Returns the root of the syntax tree of a C++ source, in bytes."""
    return parser.parse(LOCK_MARKS.sub(lambda mark: b" " * len(mark.group()), source)).root_node


def text_of(node):
    return node.text.decode()


def declarators(node):
    return node.children_by_field_name("declarator")


def declares_function(declarator):
    """Returns whether `declarator` declares a function, and not a pointer to a function."""
    while declarator is not None:
        if declarator.type == "operator_cast":
            return True
        if declarator.type == "function_declarator":
            inner = declarator.child_by_field_name("declarator")
            return inner is not None and (inner.type in FUNCTION_NAMES or inner.type == "qualified_identifier")
        following = declarator.child_by_field_name("declarator")
        if following is None and declarator.type in ("reference_declarator", "attributed_declarator"):
            following = declarator.named_children[0] if declarator.named_children else None
        declarator = following
    return False


def is_constant(node):
    words = {text_of(child) for child in node.children if child.type in ("storage_class_specifier", "type_qualifier")}
    return "constexpr" in words or {"static", "const"} <= words


def count_declarations(body, found):
    for node in body.children:
        inner = node
        while inner.type == "template_declaration":
            inner = inner.children[-1]
        if inner.type in ("preproc_if", "preproc_ifdef", "preproc_else"):
            count_declarations(inner, found)
        elif inner.type == "function_definition":
            found.methods += 1
        elif inner.type in ("field_declaration", "declaration"):
            of_functions = [declares_function(each) for each in declarators(inner)]
            found.methods += sum(of_functions)
            if not is_constant(inner):
                found.members += of_functions.count(False)


def classes_of(node, file, outer=""):
    """Yields the classes that are defined inside of `node`."""
    for child in node.children:
        name = outer
        if child.type in ("class_specifier", "struct_specifier"):
            body = child.child_by_field_name("body")
            named = child.child_by_field_name("name")
            if body is not None and named is not None:
                name = f"{outer}::{text_of(named)}" if outer else text_of(named)
                found = Class(name, file, child.start_point[0] + 1, child.type.split("_")[0])
                count_declarations(body, found)
                yield found
        yield from classes_of(child, file, name)


def leaves(node):
    if node.type == "comment":
        return
    if not node.children or node.type in ("string_literal", "char_literal", "raw_string_literal"):
        yield node
        return
    for child in node.children:
        yield from leaves(child)


def cpp_tokens(node):
    numbers = {}
    out = []
    for leaf in leaves(node):
        word = text_of(leaf)
        out.append(numbers.setdefault(word, len(numbers)) if leaf.type in NAMES else word)
    return tuple(out)


def cpp_functions(node, file):
    for child in node.children:
        if child.type == "function_definition" and child.child_by_field_name("body") is not None:
            first, last = child.start_point[0], child.end_point[0]
            if last - first + 1 >= CLONE_LINES:
                declarator = child.child_by_field_name("declarator")
                name = text_of(declarator).split("(")[0].strip() if declarator is not None else "?"
                yield Function(name, file, first + 1, last - first + 1, cpp_tokens(child))
        else:
            yield from cpp_functions(child, file)


class Numbered(ast.NodeTransformer):
    """Replaces each name by a number: names are numbered in the order of their first use."""

    def __init__(self):
        self.numbers = {}

    def number(self, name):
        return str(self.numbers.setdefault(name, len(self.numbers)))

    def generic_visit(self, node):
        for field in ("id", "arg", "attr", "name"):
            if isinstance(getattr(node, field, None), str):
                setattr(node, field, self.number(getattr(node, field)))
        return super().generic_visit(node)


def python_functions(tree, file):
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        lines = node.end_lineno - node.lineno + 1
        if lines < CLONE_LINES:
            continue
        name, line = node.name, node.lineno
        copy = ast.parse(ast.unparse(node)).body[0]
        if ast.get_docstring(copy) is not None:
            copy.body = copy.body[1:]
        yield Function(name, file, line, lines, (ast.dump(Numbered().visit(copy)),))


def python_classes(tree, file):
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            methods = sum(isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) for each in node.body)
            yield Class(node.name, file, node.lineno, "class", methods)


def sources(root, folders):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".h", ".cc", ".py") and "__pycache__" not in path.parts:
                yield path


def measure(root, folders):
    """Returns the classes of the folders, and the functions that have at least CLONE_LINES
    lines."""
    parser = cpp_parser()
    classes, functions = [], []
    for path in sources(root, folders):
        file = path.relative_to(root).as_posix()
        if path.suffix == ".py":
            tree = ast.parse(path.read_text(encoding="utf-8"))
            classes += python_classes(tree, file)
            functions += python_functions(tree, file)
        else:
            tree = cpp_tree(parser, path.read_bytes())
            classes += classes_of(tree, file)
            functions += cpp_functions(tree, file)
    return classes, functions


def clones(functions):
    """Returns the groups of functions that differ only in names, the longest functions first."""
    groups = collections.defaultdict(list)
    for function in functions:
        groups[function.tokens].append(function)
    found = [group for group in groups.values() if len(group) > 1]
    return sorted(found, key=lambda group: -group[0].lines)


def report(classes, groups, most):
    ranked = sorted(classes, key=lambda each: -each.methods)
    for each in ranked[:most]:
        print(f"{each.methods:4} methods {each.members:4} members  {each.file}:{each.line} {each.name}")
    for each in filter(Class.too_large, ranked):
        print(f"too large: {each.file}:{each.line}: {each.name} has {each.methods} methods (at most {MOST_METHODS}) "
              f"and {each.members} data members (at most {MOST_MEMBERS})")  # fmt: skip
    for group in groups:
        places = ", ".join(f"{each.file}:{each.line} {each.name}" for each in group)
        print(f"the same function, {group[0].lines} lines: {places}")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="of the tree (default: all but tests and docs)")
    parser.add_argument("--classes", type=int, default=0, metavar="N", help="also print the N largest classes")
    parser.add_argument("--json", action="store_true", help="print classes that are too large, and clones, as JSON")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    folders = options.folders or [each for each in FOLDERS if (options.root / each).is_dir()]
    for folder in folders:
        if not (options.root / folder).is_dir():
            parser.error(f"{folder} is no folder of {options.root}")
    classes, functions = measure(options.root, folders)
    large, groups = [each for each in classes if each.too_large()], clones(functions)
    if options.json:
        same = [[{"name": each.name, "file": each.file, "line": each.line, "lines": each.lines} for each in group]
                for group in groups]  # fmt: skip
        print(json.dumps({"classes": [dataclasses.asdict(each) for each in large], "clones": same}, indent=2))
    else:
        report(classes, groups, options.classes)
        print(f"{len(classes)} classes, {len(large)} too large; {len(groups)} functions exist more than once")
    return 1 if large or groups else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
