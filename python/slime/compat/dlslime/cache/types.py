"""Assignments of DLSlime, and their JSON."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple

from slime._errors import InvalidArgument

__all__ = ["Assignment", "assignment_from_json", "assignment_to_json", "assignment_to_tuple"]


class Assignment(NamedTuple):
    """One block: of the own memory and of a peer's, by their numbers. In a batch of an endpoint or an
    agent target_offset is in the peer's memory. In a manifest of the cache source_offset is in the
    cache, and target_offset in the own memory."""

    mr_key: int
    remote_mr_key: int
    target_offset: int
    source_offset: int
    length: int


def assignment_from_json(item: Dict[str, Any]) -> Assignment:
    try:
        return Assignment(*(int(item[field]) for field in Assignment._fields))
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgument(f"this is not an assignment: {item!r:.200} ({error!r})") from None


def assignment_to_json(assignment: Any) -> Dict[str, int]:
    return dict(zip(Assignment._fields, assignment_to_tuple(assignment)))


def assignment_to_tuple(assignment: Any) -> tuple:
    return tuple(int(each) for each in Assignment(*assignment))
