"""Serves Python objects. C++ queues the requests; Python threads take, decode, call and answer them."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import sys
import threading
import time
import traceback
from typing import Any, Callable, Coroutine, Dict, Iterable, List, Optional, Tuple, TypeVar, overload

from slime import _attachments, _describe, _slime
from slime._completion import join_until
from slime._errors import Code, Error, InvalidArgument, from_status, log_failure, text_of
from slime._interceptors import Interceptor, Passed, Timing
from slime._streaming import Streaming

_log = logging.getLogger("slime")

# Most bytes of an error text that is sent to the caller; longer texts are cut.
_TEXT_LIMIT = 1000

# Type of a function that @method marks. The decorator returns the function itself, so type checkers
# keep its type.
_Marked = TypeVar("_Marked", bound="Callable[..., Any] | staticmethod[..., Any] | classmethod[Any, ..., Any]")


@overload
def method(function: _Marked) -> _Marked: ...


@overload
def method(
    function: None = None,
    *,
    name: Optional[str] = None,
    max_running: int = 0,
    priority: _slime.Priority = _slime.Priority.NORMAL,
    raw: bool = False,
    inline: bool = False,
) -> Callable[[_Marked], _Marked]: ...


def method(
    function: Optional[Any] = None,
    *,
    name: Optional[str] = None,
    max_running: int = 0,
    priority: _slime.Priority = _slime.Priority.NORMAL,
    raw: bool = False,
    inline: bool = False,
) -> Any:
    """Marks a plain or async method that peers may call: `@method` or `@method(name="other")`.
    Returns the function itself, so type checkers and editors see its own signature.

    A generator, plain or async, or a method annotated to return an Iterator or AsyncIterator, is a
    streaming method: it sends each value that it yields as a message. A parameter annotated with
    Iterator, AsyncIterator or ServerStream gets the messages that the caller writes.

    max_running: most calls of the method that run at once; further calls wait without using a
        worker. 0: no limit.
    priority: order of the calls that wait for a worker. A call of a lower priority waits as long as
        a call of a higher priority waits.
    raw: the method takes and returns bytes, which Slime does not decode. Its one argument is a
        memoryview, the body of the caller's call_bytes(). It returns any object with the buffer
        protocol, or None for an empty answer.
    inline: on an agent with Progress.CALLER, the method runs in the thread that is inside
        agent.serve_forever() or agent.poll(), with no hand-over to another thread. Inline methods
        of an agent run one at a time, so they have to be short. Other agents run the method on
        their workers. An inline method is plain: neither async nor streaming."""

    def mark(target: Any) -> Any:
        if max_running < 0:
            raise InvalidArgument("max_running is below 0")
        marked: Any = target.__func__ if isinstance(target, (staticmethod, classmethod)) else target
        served_name = name or getattr(marked, "__name__", None)
        if not callable(marked) or served_name is None:
            raise InvalidArgument(
                f"@slime.method marks functions, also above @staticmethod and @classmethod, not a {type(marked).__name__}"
            )
        marked.__slime_method__ = served_name
        marked.__slime_limits__ = (max_running, priority)
        marked.__slime_raw__ = raw
        marked.__slime_inline__ = inline
        return target

    return mark if function is None else mark(function)


class Call:
    """The call that a handler answers: caller, service, method, deadline. See current_call()."""

    __slots__ = ("_request", "_metadata", "__weakref__")

    def __init__(self, request: _slime.Request) -> None:
        self._request = request
        self._metadata: Optional[Dict[str, str]] = None

    @property
    def peer(self) -> str:
        """Returns the caller's name."""
        return self._request.peer

    @property
    def connection(self) -> int:
        """Id of the connection that the call came over: see PeerAgent.peer_of()."""
        return self._request.connection

    @property
    def service(self) -> str:
        """Returns the name of the service that is called."""
        return self._request.service

    @property
    def method(self) -> str:
        """Returns the name of the method that is called."""
        return self._request.method

    @property
    def metadata(self) -> Dict[str, str]:
        """Returns the metadata of the caller, and the entries that interceptors added."""
        if self._metadata is None:
            self._metadata = self._request.metadata()
        return self._metadata

    def seconds_left(self) -> Optional[float]:
        """Returns the seconds until the caller's deadline; None if the call has no deadline."""
        return self._request.seconds_left()

    def cancelled(self) -> bool:
        """Returns whether the caller no longer waits: the caller has cancelled, its connection has
        ended, or its deadline has passed. A long handler should check cancelled() now and then, and
        stop if true."""
        return self._request.cancelled()


# The Call, or its request as long as nothing has asked for the Call: most handlers do not.
_current_call: contextvars.ContextVar[Any] = contextvars.ContextVar("slime_call")


def current_call() -> Call:
    """Returns the call that the running handler answers. Raises InvalidArgument outside of a
    handler."""
    try:
        call = _current_call.get()
    except LookupError:
        raise InvalidArgument("current_call() works inside a handler only") from None
    if not isinstance(call, Call):
        call = Call(call)
        _current_call.set(call)
    return call


class _Method:
    """A bound method of a service, with its limits and its numbers of arguments."""

    def __init__(self, function: Callable, label: str) -> None:
        self.function = function
        self.limits = getattr(function, "__slime_limits__", (0, _slime.Priority.NORMAL))
        self.streaming = Streaming(function, inspect.signature(function), label)
        self.streams = bool(self.streaming)
        self.is_async = self.streaming.is_async
        self.signature = self.streaming.signature
        self.raw = getattr(function, "__slime_raw__", False)
        self.inline = getattr(function, "__slime_inline__", False)
        self.least = 0
        self.most: Optional[int] = 0
        for parameter in self.signature.parameters.values():
            if parameter.kind is parameter.VAR_POSITIONAL:
                self.most = None
            elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                self.least += parameter.default is parameter.empty
                self.most = None if self.most is None else self.most + 1
            elif parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
                raise InvalidArgument(
                    f"{label} needs `{parameter.name}` by keyword, but arguments travel by position"
                )
        self.most_or_any = sys.maxsize if self.most is None else self.most
        if self.raw and (self.streaming or self.least > 1 or self.most == 0):
            raise InvalidArgument(f"{label} is raw: it takes the one memoryview, and does not stream")
        if self.inline and (self.streaming or self.is_async):
            kind = "streams" if self.streaming else "is async"
            raise InvalidArgument(f"{label} is inline, but {kind}: only plain methods can be inline")

    def described(self, inline: bool) -> tuple:
        """Returns the method's description for reflection, its limits, and whether its requests wait
        for the thread that polls the agent. `inline`: the agent has no thread."""
        streaming = self.streaming
        parameters, result, doc = _describe.describe(self.function, self.signature)
        if self.raw:
            parameters, result = [(next(iter(self.signature.parameters)), "raw", False, False)], "raw"
        result = result if streaming.result is None else streaming.result
        return (parameters, result, doc, *self.limits, streaming.reads, streaming.writes, inline and self.inline)

    def arguments(self, request: Any) -> list:
        """Returns the arguments of a request whose arguments() returned None, or that has other
        bytes than arguments."""
        payload = request.take_payload()
        if self.raw:
            return [memoryview(payload)]
        arguments = _attachments.unpack(payload)
        payload.drop_attachments()
        self.check(arguments)
        return arguments

    def result(self, value: Any) -> Tuple[Any, Any]:
        """Returns the reply's body and attachments."""
        if not self.raw:
            return _attachments.pack(value)
        return b"" if value is None else memoryview(value), None

    def check(self, arguments: Any) -> None:
        if not isinstance(arguments, list):
            raise InvalidArgument(f"expected an array of the arguments, got {type(arguments).__name__}")
        count = len(arguments)
        if count < self.least or (self.most is not None and count > self.most):
            raise InvalidArgument(f"takes {self.signature}, got {count} arguments")


def methods_of(target: Any, service: str) -> dict[str, _Method]:
    found: dict[str, _Method] = {}
    for attribute in dir(type(target)):
        static = inspect.getattr_static(type(target), attribute)
        function = getattr(static, "__func__", static)
        # Refuses @slime.method under another decorator, such as @property: the attribute is then a
        # value, not a method.
        for inner in ("fget", "func"):
            if hasattr(getattr(function, inner, None), "__slime_method__"):
                raise InvalidArgument(f"{service}.{attribute} is a {type(static).__name__}, which cannot be served")
        name = getattr(function, "__slime_method__", None)
        if isinstance(name, str):
            if name in found:
                raise InvalidArgument(f"{service} has two methods named {name!r}")
            found[name] = _Method(getattr(target, attribute), f"{service}.{name}")
    if not found:
        raise InvalidArgument(f"{type(target).__name__} has no method marked with @slime.method")
    return found


async def _all_ended(tasks: Iterable[asyncio.Task]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


class AsyncRunner:
    """One asyncio loop in a thread, for the async handlers of an agent."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.ended = False
        self._closed = False
        self._lock = threading.Lock()
        # Coroutines that the loop has not started yet, with their contexts and callbacks.
        self._new: List[Tuple[contextvars.Context, Coroutine, Callable[[asyncio.Task], None]]] = []
        self._thread = threading.Thread(target=self._run, name="slime-asyncio", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            while not self.ended:
                self._log_what_ends(self.loop.run_forever)
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self._complete(_all_ended(tasks))
            self._complete(self.loop.shutdown_asyncgens())
        finally:
            with self._lock:
                self._closed = True
                left, self._new = self._new, []
            for _, work, _ in left:
                work.close()
            self.loop.close()

    def start(self, work: Coroutine, ended: Callable[[asyncio.Task], None]) -> None:
        """Starts a coroutine in the loop, in a copy of the calling thread's context, and calls
        ended(task) after its end. The coroutines of a burst wake the loop once. Raises RuntimeError
        if the loop is closed."""
        with self._lock:
            if self._closed:
                work.close()
                raise RuntimeError("the loop of async handlers is closed")
            self._new.append((contextvars.copy_context(), work, ended))
            if len(self._new) > 1:
                return  # the loop has been woken for an earlier coroutine
            try:
                self.loop.call_soon_threadsafe(self._start_new)
            except BaseException:
                self._new.clear()
                work.close()
                raise

    def _start_new(self) -> None:
        with self._lock:
            new, self._new = self._new, []
        for context, work, ended in new:
            context.run(self.loop.create_task, work).add_done_callback(ended)

    def _complete(self, work: Coroutine) -> None:
        task = self.loop.create_task(work)
        while not task.done():
            self._log_what_ends(lambda: self.loop.run_until_complete(task))

    def _log_what_ends(self, run: Callable[[], Any]) -> None:
        # SystemExit and KeyboardInterrupt of a task or callback end run_forever(), so the caller
        # runs the loop again; callbacks that are ready stay in the loop.
        try:
            run()
        except BaseException as error:
            log_failure(_log, error, "what async handlers started ended their loop, which goes on")

    def _stop(self) -> None:
        self.ended = True
        self.loop.stop()

    def end(self) -> None:
        try:
            self.loop.call_soon_threadsafe(self._stop)
        except RuntimeError:
            pass  # the loop is closed

    def join(self, deadline: float) -> None:
        join_until(self._thread, deadline)


class _Watched:
    """A request whose answer passes interceptors."""

    def __init__(self, request: _slime.Request, interceptors: List[Interceptor]) -> None:
        self._request = request
        self._passed = Passed(list(interceptors), "a server interceptor")
        self._call: Optional[Call] = None
        self._began = time.monotonic_ns()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)

    def let_in(self, call: Call) -> bool:
        """Runs before() of the interceptors. Returns False if an interceptor refused the call; the
        caller has then got the error."""
        self._call = call
        try:
            self._passed.before(call)
        except Error as error:
            self.fail(error.code, error.text, False)
            return False
        return True

    def reply_value(self, value: Any, late: bool = False) -> bool:
        return False  # interceptors see answers in reply()

    def reply(self, body: Any, attached: Any = None) -> None:
        error = self._after(None)
        if error is None:
            self._request.reply(body, attached)
        else:
            self._request.fail(error.code, error.text, error.maybe_executed)

    def fail(self, code: Code, text: str, executed: bool) -> None:
        error = self._after(from_status(int(code), text, executed))
        assert error is not None
        self._request.fail(error.code, error.text, error.maybe_executed)

    def _after(self, error: Optional[Error]) -> Optional[Error]:
        queue = self._request.queue_ns
        handler = time.monotonic_ns() - self._began
        return self._passed.after(self._call, error, Timing(queue, handler, 0, queue + handler, True))


class Server:
    """One served object and its worker threads."""

    def __init__(
        self,
        target: Any,
        name: str,
        workers: int,
        queue_limit: int,
        tracebacks: bool,
        runner: Callable[[], AsyncRunner],
        inline: bool,
    ) -> None:
        if workers < 1 or queue_limit < 1:
            raise InvalidArgument("workers and queue_limit are at least 1")
        self.name = name
        self._methods = methods_of(target, name)
        described = [(method, *m.described(inline)) for method, m in self._methods.items()]
        self.service = _slime.Service(name, described, queue_limit)
        self.interceptors: List[Interceptor] = []
        self._tracebacks = tracebacks
        self._runner = runner
        self._tasks: dict[int, asyncio.Task] = {}  # by the asyncio loop
        self._watching = False  # the asyncio loop watches for cancelled requests
        self._async_slots = threading.BoundedSemaphore(queue_limit)
        # Whether requests reach run_inline().
        self.inline = inline and any(m.inline for m in self._methods.values())
        if inline and all(m.inline for m in self._methods.values()):
            workers = 0
        self._threads = [
            threading.Thread(target=self._work, name=f"slime-{name}-{i}", daemon=True) for i in range(workers)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self.service.close()

    def join(self, deadline: float) -> None:
        for thread in self._threads:
            if thread.is_alive():
                join_until(thread, deadline)

    def _work(self) -> None:
        request = None
        while True:
            # take() sends the answer of the request before, with the loop in this thread's hands
            request = self.service.take(request)
            if request is None:
                return
            try:
                if self.interceptors:
                    self._serve(request)
                else:
                    self._handle(request, True)
            except BaseException as error:  # a bug in Slime: logs it, and the worker goes on
                log_failure(_log, error, "serving %s.%s; it is answered with Internal", self.name, request.method)

    def run_inline(self, request: _slime.Request) -> None:
        """Runs an inline method in the calling thread, and answers its caller. Raises only
        KeyboardInterrupt, after the caller has been answered: it ends serve_forever()."""
        try:
            if self.interceptors:
                self._serve(request)
            else:
                self._handle(request)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a bug in Slime, as in _work()
            log_failure(_log, error, "serving %s.%s; it is answered with Internal", self.name, request.method)

    def _serve(self, request: _slime.Request) -> None:
        # Runs the call in a copied context, because interceptors may set context variables (a
        # trace) for only this call.
        contextvars.copy_context().run(self._handle, _Watched(request, self.interceptors))

    # Answers most calls without another function of Python than the handler itself. `late`: the
    # answer may wait until the caller gives the request to Service.take().
    def _handle(self, request: Any, late: bool = False) -> None:
        handler = self._methods[request.method]
        call = request
        if self.interceptors and isinstance(request, _Watched):
            call = Call(request)
            if not request.let_in(call):
                return
        try:
            arguments = None if handler.raw else request.arguments()
            if arguments is None:
                arguments = handler.arguments(request)
            elif not handler.least <= len(arguments) <= handler.most_or_any:
                handler.check(arguments)
        except InvalidArgument as error:
            text = f"bad arguments for {self.name}.{request.method}: {error.text}"
            request.fail(Code.INVALID_ARGUMENT, text, False)
            return
        token = _current_call.set(call)
        try:
            run = handler.function
            if handler.streams:
                run = handler.streaming.opened(request, run)
                if run is None:  # answered with an error
                    return
            if handler.is_async:
                self._start_async(request, run, arguments)
            else:
                value = run(*arguments)
                if handler.raw or not request.reply_value(value, late):
                    self._answer(request, value)
        # SystemExit of a handler is answered, too: it must not end this worker
        except BaseException as error:
            self._fail(request, error)
            if self.inline and handler.inline and isinstance(error, KeyboardInterrupt):
                raise  # Ctrl-C, in the program's own thread
        finally:
            _current_call.reset(token)

    def _start_async(self, request: Any, run: Callable, arguments: list) -> None:
        if not self._async_slots.acquire(blocking=False):
            request.fail(Code.RESOURCE_EXHAUSTED, f"too many calls of {self.name} are under way", False)
            return
        try:
            self._runner().start(self._run_async(request, run, arguments), self._async_ended)
        except BaseException:
            self._async_slots.release()
            raise

    def _async_ended(self, done: asyncio.Task) -> None:
        self._async_slots.release()
        error = None if done.cancelled() else done.exception()
        if error is not None:  # a bug in Slime, as in _work()
            log_failure(_log, error, "serving an async method of %s; it is answered with Internal", self.name)

    def _on_cancelled(self) -> None:
        for number in self.service.take_cancelled():
            task = self._tasks.get(number)
            if task is not None:
                task.cancel()

    async def _run_async(self, request: Any, run: Callable, arguments: list) -> None:
        if not self._watching:
            asyncio.get_running_loop().add_reader(self.service.cancel_fd(), self._on_cancelled)
            self._watching = True
        number = request.watch_cancel()
        task = asyncio.current_task()
        assert task is not None
        self._tasks[number] = task
        try:
            left = request.seconds_left()
            value = await asyncio.wait_for(run(*arguments), left)
            if self._methods[request.method].raw or not request.reply_value(value):
                self._answer(request, value)
        except asyncio.CancelledError as error:
            if request.cancelled():
                request.fail(Code.CANCELLED, "its caller does not wait any more", True)
            elif self._runner().ended:
                request.fail(Code.UNAVAILABLE, f"{self.name} ended before {request.method} did", True)
            else:  # the handler raised it itself
                self._fail(request, error)
        except BaseException as error:
            left = request.seconds_left()
            if isinstance(error, asyncio.TimeoutError) and left is not None and left <= 0:
                request.fail(Code.DEADLINE_EXCEEDED, "the deadline passed while the handler ran", True)
            else:
                self._fail(request, error)
        finally:
            del self._tasks[number]

    def _answer(self, request: Any, value: Any) -> None:
        """Answers with a value of a raw method, or that reply_value() cannot encode."""
        handler = self._methods[request.method]
        try:
            body, beside = handler.result(value)
        except (InvalidArgument, TypeError) as error:
            why = error.text if isinstance(error, InvalidArgument) else f"cannot be sent: {error}"
            if inspect.isawaitable(value):
                why = "is an awaitable: make the method async"
                if inspect.iscoroutine(value):
                    value.close()
            text = f"the result of {self.name}.{request.method} {why}"
            _log.error("%s, called by %s", text, request.peer)
            request.fail(Code.INTERNAL, text, True)
            return
        request.reply(body, beside)

    def _fail(self, request: Any, error: BaseException) -> None:
        if isinstance(error, Error):  # raised on purpose as the answer
            request.fail(error.code, error.text, True)
            return
        log_failure(_log, error, "%s.%s failed, called by %s", self.name, request.method, request.peer)
        text = text_of(error)
        if self._tracebacks:
            # Puts the most recent frame first, so that cutting the text removes the least important
            # frames.
            frames = reversed(traceback.extract_tb(error.__traceback__)[1:])
            text += "".join(f"\n  in {f.name} ({f.filename}:{f.lineno}): {f.line}" for f in frames)
        request.fail(Code.INTERNAL, text.encode(errors="replace")[:_TEXT_LIMIT].decode(errors="ignore"), True)
