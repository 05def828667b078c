"""Remembers the methods of services for dir(proxy). This module never asks a peer for them."""

from __future__ import annotations

import keyword
from typing import Any, Dict, Iterable, List

# Most services that are remembered for an agent, and most methods for a service. The limit is
# needed because the names come from peers.
_LIMIT = 1024


class KnownMethods(Dict[str, None]):
    """Names of the methods of one service, as keys. Any thread."""

    def add(self, name: str) -> None:
        """Adds a method's name, unless _LIMIT names are known already."""
        if len(self) < _LIMIT:
            self[name] = None

    def attributes(self) -> List[str]:
        """Returns the names that can be attributes of a proxy."""
        names = list(self)
        return [n for n in names if n.isidentifier() and not keyword.iskeyword(n) and not n.startswith("__")]


def methods_of(agent: Any, service: str) -> KnownMethods:
    """Returns the agent's KnownMethods of a service. All peers that serve `service` share the
    object."""
    services: Dict[str, KnownMethods] = vars(agent).setdefault("_known_methods", {})
    found = services.get(service)
    if found is None:
        found = KnownMethods()
        if len(services) < _LIMIT:
            found = services.setdefault(service, found)
    return found


def remember(agent: Any, services: Any) -> None:
    """Adds the methods in `services`, the result of Peer.services(). Ignores entries of another
    form."""
    for service in services if isinstance(services, list) else ():
        try:
            names: Iterable[Any] = [method["name"] for method in service["methods"]]
            known = methods_of(agent, service["name"])
        except (TypeError, KeyError):
            continue
        for name in names:
            if isinstance(name, str):
                known.add(name)
