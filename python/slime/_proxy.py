"""Proxies of a service on any of its servers."""

from __future__ import annotations

import copy
from typing import Any, Dict, FrozenSet, Iterable, Mapping, NamedTuple, Optional, Union

from slime import _attachments, _interceptors, _slime
from slime._errors import InvalidArgument


class Retry(NamedTuple):
    """How often and when a call may be repeated that may have been executed.

    attempts: that may have been executed, the first one included. backoff: seconds before the second one; doubled up
    to backoff_max, each cut by up to half at random. attempt_timeout: seconds for one attempt; None: what is left of
    the call's.
    """

    attempts: int = 3
    backoff: float = 0.02
    backoff_max: float = 1.0
    attempt_timeout: Optional[float] = None


class AnyServer:
    """The servers of a service, with the methods of a peer that has only this service. Any thread."""

    _optional: FrozenSet[str] = frozenset()
    _timing = False

    def __init__(
        self,
        agent: _slime.PeerAgent,
        service: str,
        balance: str,
        key: str,
        idempotent: Union[bool, Iterable[str]],
        retry: Optional[Retry],
        wait_for_ready: bool,
        metadata: Optional[Mapping[str, str]],
    ) -> None:
        self.name = "any server"
        self.agent = agent
        self._metadata: Dict[str, str] = dict(metadata or {})
        self._once = _slime.ServiceProxy(agent, service, balance, key, None, wait_for_ready)
        self._again = self._once
        # None: all methods are; else those.
        self._idempotent: Optional[frozenset] = None
        if isinstance(idempotent, str):
            raise InvalidArgument("idempotent is True, False, or the names of methods")
        if idempotent is not True:
            self._idempotent = frozenset(idempotent or ())
        if self._idempotent is None or self._idempotent:
            self._again = self._once.idempotent(*(retry or Retry()))
        elif retry is not None:
            raise InvalidArgument("retry has a meaning for idempotent methods only")

    def with_signature(self, signature: str) -> AnyServer:
        """As that of Peer."""
        out = copy.copy(self)
        out._once = self._once.with_signature(signature)
        out._again = self._again.with_signature(signature)
        return out

    def call(self, service: str, method: str, *arguments: Any, timeout: Optional[float] = None) -> _slime.Future:
        proxy = self._repeating(method)
        if not (self._metadata or self._timing or self.agent.client_interceptors):
            future = proxy.call_value(method, arguments, timeout)
            if future is not None:
                return future
        begin = _attachments.starter(proxy.call_raw, proxy.call_attached, (method,), arguments, timeout)
        return _interceptors.begin_call(self, "call", (service, method), begin)

    def call_bytes(self, service: str, method: str, body: Any, timeout: Optional[float] = None) -> _slime.Future:
        proxy = self._repeating(method)

        def start(entries: Optional[_interceptors.Entries], timed: bool) -> _slime.Future:
            return proxy.call_raw(method, body, timeout, memoryview, entries, timed, as_bytes=True)

        return _interceptors.begin_call(self, "call", (service, method), start)

    def _repeating(self, method: str) -> _slime.ServiceProxy:
        again = self._idempotent is None or method in self._idempotent
        return self._again if again else self._once

    def one_way(self, service: str, method: str, *arguments: Any, timeout: Optional[float] = None) -> _slime.Future:
        body, beside = _attachments.pack(arguments)

        def start(entries: Optional[_interceptors.Entries], timed: bool) -> _slime.Future:
            return self._once.one_way_raw(method, body, timeout, entries, timed, beside)

        return _interceptors.begin_call(self, "one-way", (service, method), start)
