"""The calls of agent.proxy(), which any live server of a service may answer."""

from __future__ import annotations

import copy
from typing import Any, Dict, FrozenSet, Iterable, Mapping, NamedTuple, Optional, Union

from slime import _attachments, _interceptors, _slime
from slime._errors import InvalidArgument


class Retry(NamedTuple):
    """Limits the attempts of a call of an idempotent method.

    attempts: most attempts that the server may have executed, including the first attempt.
    backoff: seconds before the second attempt. Doubles before each further attempt, up to
        backoff_max seconds; each wait is shortened by up to half at random.
    attempt_timeout: most seconds of one attempt; None: all the time that the call has left.
    """

    attempts: int = 3
    backoff: float = 0.02
    backoff_max: float = 1.0
    attempt_timeout: Optional[float] = None


class AnyServer:
    """Stands for the live servers of one service. Has those methods of Peer that a Proxy uses. Any
    thread."""

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
        self._plain = _slime.ServiceProxy(agent, service, balance, key, None, wait_for_ready)
        self._retrying = self._plain
        # The idempotent methods; None: all methods are.
        self._idempotent: Optional[frozenset] = None
        if isinstance(idempotent, str):
            raise InvalidArgument("idempotent is True, False, or the names of methods")
        if idempotent is not True:
            self._idempotent = frozenset(idempotent or ())
        if self._idempotent is None or self._idempotent:
            self._retrying = self._plain.idempotent(*(retry or Retry()))
        elif retry is not None:
            raise InvalidArgument("retry has a meaning for idempotent methods only")

    def with_signature(self, signature: str) -> AnyServer:
        """Like Peer.with_signature()."""
        out = copy.copy(self)
        out._plain = self._plain.with_signature(signature)
        out._retrying = self._retrying.with_signature(signature)
        return out

    def call(self, service: str, method: str, *arguments: Any, timeout: Optional[float] = None) -> _slime.Future:
        proxy = self._proxy_of(method)
        if not (self._metadata or self._timing or self.agent._client_interceptors):
            future = proxy.call_value(method, arguments, timeout)
            if future is not None:
                return future
        begin = _attachments.starter(proxy.call_raw, proxy.call_attached, (method,), arguments, timeout)
        return _interceptors.begin_call(self, "call", (service, method), begin)

    def _call_now(self, service: str, method: str, arguments: tuple, timeout: Optional[float]) -> Any:
        """Like Peer._call_now()."""
        if self._timing or self._metadata or self.agent._client_interceptors:
            return NotImplemented
        return self._proxy_of(method).call_now(method, arguments, timeout)

    def call_bytes(self, service: str, method: str, body: Any, timeout: Optional[float] = None) -> _slime.Future:
        proxy = self._proxy_of(method)

        def start(entries: Optional[_interceptors.Entries], timed: bool) -> _slime.Future:
            return proxy.call_raw(method, body, timeout, memoryview, entries, timed, as_bytes=True)

        return _interceptors.begin_call(self, "call", (service, method), start)

    def _proxy_of(self, method: str) -> _slime.ServiceProxy:
        """Returns the ServiceProxy for calls of `method`: the one that retries if the method is
        idempotent."""
        retries = self._idempotent is None or method in self._idempotent
        return self._retrying if retries else self._plain

    def one_way(self, service: str, method: str, *arguments: Any, timeout: Optional[float] = None) -> _slime.Future:
        body, beside = _attachments.pack(arguments)

        def start(entries: Optional[_interceptors.Entries], timed: bool) -> _slime.Future:
            return self._plain.one_way_raw(method, body, timeout, entries, timed, beside)

        return _interceptors.begin_call(self, "one-way", (service, method), start)
