"""Assignment, where DLSlime has it."""

from slime.compat.dlslime.cache.types import Assignment

__all__ = ["Assignment"]
