"""The stub that is checked in says what the extension has."""

import ast
import pathlib
import subprocess
import sys

import pytest

import slime
from slime import _slime

STUB = pathlib.Path(slime.__file__).with_name("_slime.pyi")


def shape(text):
    """Classes, functions and their arguments: the stub without what a formatter may change."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Expr(ast.Constant(...))]
    body = [n for n in tree.body if not isinstance(n, (ast.Import, ast.ImportFrom))]
    return [ast.unparse(n) for n in body]


def test_the_stub_is_what_the_generator_makes(tmp_path):
    pytest.importorskip("nanobind", reason="nanobind, which generates stubs, is not installed")
    out = tmp_path / "_slime.pyi"
    subprocess.run(
        [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "slime._slime", "-o", str(out)], check=True, timeout=60
    )
    assert shape(STUB.read_text()) == shape(out.read_text()), "regenerate it: python/README.md says how"


def test_the_stub_names_everything():
    tree = ast.parse(STUB.read_text())
    stubbed = {n.name for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
    assert stubbed == {n for n, v in vars(_slime).items() if callable(v)}


def test_the_package_is_typed_and_exports_what_it_says():
    assert STUB.with_name("py.typed").is_file()
    for name in slime.__all__:
        assert hasattr(slime, name)
