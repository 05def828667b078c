"""Prints one line of JSON that says where NIXL's libraries are. Does not import NIXL, because the import loads them."""
import sys

# Removes the working directory from the import path, so that no module is imported from there.
sys.path[:] = [folder for folder in sys.path if folder]

import importlib.metadata
import importlib.util
import json
import os
import re

# NIXL's packages, in the order in which the package `nixl` tries to import them.
PACKAGES = ("nixl_cu13", "nixl_cu12", "nixl_cu11", "nixl_rocm")


def text_beside(module, name):
    """Returns the text of the file `name` in the folder of a module; "" if there is none."""
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.origin:
        return ""
    try:
        with open(os.path.join(os.path.dirname(spec.origin), name), encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def preferred():
    """Returns the package that `nixl` chooses by torch's CUDA version, or None. nixl 1.0 does
    not look at torch."""
    if "cuda_major" not in text_beside("nixl", "__init__.py"):
        return None
    found = re.search(r"^cuda\b[^=\n]*=\s*['\"](\d+)", text_beside("torch", "version.py"), re.MULTILINE)
    return found and f"nixl_cu{found.group(1)}"


def version_of(package):
    try:
        return importlib.metadata.version(package.replace("_", "-"))
    except importlib.metadata.PackageNotFoundError:
        return ""


def main():
    installed = [package for package in PACKAGES if importlib.util.find_spec(package)]
    answer = {"slime_nixl_probe": 1, "meta": bool(importlib.util.find_spec("nixl"))}
    if installed:
        wanted = preferred()
        package = wanted if wanted in installed else installed[0]
        folder = next(iter(importlib.util.find_spec(package).submodule_search_locations))
        answer.update(
            package=package,
            version=version_of(package),
            site=os.path.dirname(os.path.abspath(folder)),
            # Without torch the choice is a guess.
            others=[] if package == wanted else [other for other in installed if other != package],
        )
    print("\n" + json.dumps(answer), flush=True)


main()
