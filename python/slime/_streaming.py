"""Streaming methods: recognizes and runs them."""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from typing import Any, Callable, Dict, Optional

from slime import _describe, _streams
from slime._errors import Code, InvalidArgument

# Annotations that make a method a streaming method: _PARAMETERS of the parameter that gets the
# stream, _RESULTS of the result if the method yields messages. The value: whether the method is
# async.
_PARAMETERS = {
    collections.abc.Iterator: False,
    collections.abc.AsyncIterator: True,
    _streams.ServerStream: False,
    _streams.AsyncServerStream: True,
}
_RESULTS = {
    collections.abc.Iterator: False,
    collections.abc.Generator: False,
    collections.abc.AsyncIterator: True,
    collections.abc.AsyncGenerator: True,
}


def _hints(function: Callable) -> Dict[str, Any]:
    """Returns the function's annotations. An annotation with an unknown name is left out; the
    others are still found."""
    try:
        return typing.get_type_hints(function)
    except Exception:  # an annotation has a name that only type checkers can resolve
        pass
    found: Dict[str, Any] = {}
    known = getattr(inspect.unwrap(function), "__globals__", {})
    for name, hint in getattr(function, "__annotations__", {}).items():
        try:
            found.update(typing.get_type_hints(types.SimpleNamespace(__annotations__={name: hint}), known))
        except Exception:
            continue
    return found


def _origin(hint: Any) -> Optional[type]:
    origin = typing.get_origin(hint) or hint
    return origin if isinstance(origin, type) else None


def _inner(hint: Any, index: int) -> str:
    """Returns the wire type of type argument number `index` of the hint: of str in
    Iterator[str]."""
    inner = typing.get_args(hint)
    return _describe.wire_type(inner[index]) if index < len(inner) else "any"


class Streaming:
    """How a method streams."""

    def __init__(self, function: Callable, signature: inspect.Signature, label: str) -> None:
        self._label = label
        self.reads = self.writes = ""  # wire types of the messages; empty: none
        # wire type of the result; None if the return annotation is the type of the result itself
        self.result: Optional[str] = None
        # position of the stream's parameter; None if the stream is passed by keyword
        self._index: Optional[int] = None
        hints = _hints(function)
        self._generates, is_async = self._writer(function, hints.get("return"))
        self.is_async = is_async or inspect.iscoroutinefunction(function)
        self._name = self._reader(signature, hints)
        # The signature without the stream's parameter, for which the caller passes no argument.
        self.signature = signature.replace(parameters=[p for n, p in signature.parameters.items() if n != self._name])

    def __bool__(self) -> bool:
        return self._generates or self._name is not None

    def _writer(self, function: Callable, hint: Any) -> tuple[bool, bool]:
        """Returns two values: whether the method yields the messages to write, and whether it is
        then async."""
        async_generator = inspect.isasyncgenfunction(function)
        generator = inspect.isgeneratorfunction(function)
        if not generator and not async_generator and _origin(hint) not in _RESULTS:
            return False, False
        self.writes = _inner(hint, 0)
        returns = generator and hint is None or _origin(hint) is collections.abc.Generator
        self.result = _inner(hint, 2) if returns else "none"
        return True, async_generator or (not generator and _RESULTS[_origin(hint)])

    def _reader(self, signature: inspect.Signature, hints: Dict[str, Any]) -> Optional[str]:
        """Returns the name of the parameter that gets the stream; None if there is no such
        parameter."""
        found: Optional[str] = None
        position = 0
        for name, parameter in signature.parameters.items():
            origin = _origin(hints.get(name))
            positional = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
            if origin in _PARAMETERS and (positional or parameter.kind is parameter.KEYWORD_ONLY):
                self._check_parameter(name, origin, found)
                found = name
                self._index = position if positional else None
                self._take_types(hints[name], origin)
            position += 1
        return found

    def _check_parameter(self, name: str, origin: Any, found: Optional[str]) -> None:
        if found is not None:
            raise InvalidArgument(f"{self._label} takes one stream: `{found}` and `{name}` are two")
        if _PARAMETERS[origin] != self.is_async:
            one = "AsyncIterator or AsyncServerStream" if self.is_async else "Iterator or ServerStream"
            kind = "async" if self.is_async else "plain"
            raise InvalidArgument(f"{self._label} is {kind}: its stream `{name}` is an {one}")

    def _take_types(self, hint: Any, origin: Any) -> None:
        if origin in (collections.abc.Iterator, collections.abc.AsyncIterator):
            self.reads = _inner(hint, 0)
            return
        if self._generates:
            raise InvalidArgument(f"{self._label} writes what it yields: it takes an iterator, not a {origin.__name__}")
        inner = typing.get_args(hint) or (Any, Any)
        self.reads, self.writes = ("" if t is type(None) or t is None else _describe.wire_type(t) for t in inner)

    def opened(self, request: Any, function: Callable) -> Optional[Callable]:
        """Returns the function to call with the arguments. Returns None if the request opened no
        stream; the request is then answered with an error."""
        end = request.stream()
        if end is None:
            if request.cancelled():
                request.fail(Code.CANCELLED, "nobody waits for the stream any more", False)
            else:
                request.fail(Code.INVALID_ARGUMENT, f"{self._label} streams: call it as a stream", False)
            return None
        kind = _streams.AsyncServerStream if self.is_async else _streams.ServerStream
        stream: Any = kind(end, request, bool(self.reads), bool(self.writes))
        run = self._run_async if self.is_async else self._run
        return lambda *arguments: run(stream, lambda: self._call(function, arguments, stream))

    def _call(self, function: Callable, arguments: tuple, stream: Any) -> Any:
        if self._name is None:
            return function(*arguments)
        if self._index is None or self._index > len(arguments):
            return function(*arguments, **{self._name: stream})
        return function(*arguments[: self._index], stream, *arguments[self._index :])

    def _run(self, stream: Any, function: Callable[[], Any]) -> Any:
        outcome = function()
        if not self._generates:
            return outcome
        messages = iter(outcome)
        try:
            while True:
                try:
                    message = next(messages)
                except StopIteration as end:
                    return end.value
                stream._start_yield(message).result()
        finally:
            # Closes a generator that has not ended: GeneratorExit is raised at its yield.
            getattr(messages, "close", lambda: None)()

    async def _run_async(self, stream: Any, function: Callable[[], Any]) -> Any:
        outcome = function()
        if inspect.isawaitable(outcome):
            outcome = await outcome
        if not self._generates:
            return outcome
        messages = outcome.__aiter__()
        try:
            async for message in messages:
                await stream._accepted(stream._start_yield(message))
        finally:
            if hasattr(messages, "aclose"):
                await messages.aclose()
        return None
