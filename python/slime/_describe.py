"""Describes a method for reflection: its parameters and result, with wire type names."""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from typing import Any, Callable, List, Tuple

# A parameter: (name, type, may be left out, stands for any number of arguments).
Parameter = Tuple[str, str, bool, bool]

_NAMES = {bool: "bool", int: "int", float: "float", str: "str", bytes: "bytes", bytearray: "bytes", memoryview: "bytes"}
_LISTS = (list, collections.abc.Sequence, collections.abc.MutableSequence)
_MAPS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
# The origins of union types: typing.Union, and types.UnionType (X | Y) in Python versions with it.
_UNIONS = (typing.Union, getattr(types, "UnionType", typing.Union))


def wire_type(hint: Any) -> str:
    """Returns the wire type of a type hint; "any" if the hint has no wire type."""
    if hint is None or hint is type(None):
        return "none"
    origin = typing.get_origin(hint) or hint
    inner = typing.get_args(hint)
    if origin in _UNIONS:
        return _union(inner)
    if origin is tuple and hint not in (tuple, typing.Tuple):
        if len(inner) == 2 and inner[1] is Ellipsis:
            return f"list[{wire_type(inner[0])}]"
        # The arguments of the hint tuple[()] are one empty tuple in some versions of Python.
        return "tuple[" + ", ".join(wire_type(each) for each in inner if each != ()) + "]"
    if origin is tuple or origin in _LISTS:
        return f"list[{wire_type(inner[0]) if len(inner) == 1 else 'any'}]"
    if origin in _MAPS:
        key, value = (wire_type(each) for each in inner) if len(inner) == 2 else ("any", "any")
        return f"map[{key}, {value}]"
    return _NAMES.get(origin, "any") if isinstance(origin, type) else "any"


def _union(members: tuple) -> str:
    others = [each for each in members if each is not type(None)]
    if len(others) == len(members):
        return "any"
    return f"optional[{wire_type(others[0]) if len(others) == 1 else 'any'}]"


def describe(function: Callable, signature: inspect.Signature) -> Tuple[List[Parameter], str, str]:
    """Returns the parameters, the result and the docstring of a function with positional
    arguments."""
    try:
        hints = typing.get_type_hints(function)
    # a hint has a name that only type checkers can resolve: treats all hints as missing
    except Exception:
        hints = {}
    parameters = []
    for parameter in signature.parameters.values():
        rest = parameter.kind is parameter.VAR_POSITIONAL
        if rest or parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            name = parameter.name
            kind = wire_type(hints[name]) if name in hints else "any"
            parameters.append((name, kind, parameter.default is not parameter.empty, rest))
    result = wire_type(hints["return"]) if "return" in hints else "any"
    return parameters, result, inspect.getdoc(function) or ""
