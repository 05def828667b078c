"""Gives the package of an earlier version the names of this one: import it after slime, before all else.

Until 26efa7a the timeouts of operations were called `deadline`, and Future.result() was called wait().
"""

from __future__ import annotations

import functools
from typing import Any, Callable

import slime

RENAMED = ("call", "stream", "write_with_imm")  # methods of Peer that tests/mixed calls with a timeout


def renaming(method: Callable) -> Callable:
    @functools.wraps(method)
    def call(*arguments: Any, **options: Any) -> Any:
        if "timeout" in options:
            options["deadline"] = options.pop("timeout")
        return method(*arguments, **options)

    return call


if not hasattr(slime.Peer, "with_timeout"):
    for name in RENAMED:
        setattr(slime.Peer, name, renaming(getattr(slime.Peer, name)))
    setattr(slime.Peer, "with_timeout", getattr(slime.Peer, "with_deadline"))

if not hasattr(slime.Future, "result"):
    setattr(slime.Future, "result", getattr(slime.Future, "wait"))
