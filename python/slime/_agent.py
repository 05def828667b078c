"""PeerAgent: connects this process to its peers, calls their services, and serves its own."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import logging
import os
import queue
import threading
import time
import weakref
from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Union

from slime import _attachments, _completion, _memory, _slime
from slime._errors import DeadlineExceeded, InvalidArgument, Unavailable, log_failure
from slime._info import AgentInfo, RegisteredPeer
from slime._interceptors import Interceptor
from slime._peer import AsyncProxy, Peer, Proxy
from slime._proxy import AnyServer, Retry
from slime._service import AsyncRunner, Server

_log = logging.getLogger("slime")

# Most turns of the agent's loop with which poll() and serve_forever() end.
_LAST_TURNS = 16

# Seconds in which the agents that the program left open are closed when the process ends, and the
# least for each of them: one Ctrl-C ends a program within 2 s.
_EXIT_SECONDS = 1.0
_EXIT_SECONDS_LEAST = 0.05

_agents: weakref.WeakSet[PeerAgent] = weakref.WeakSet()
# Agents that run Python threads. The set keeps them alive: they serve even if the program keeps no
# reference to them.
_busy: set[PeerAgent] = set()


class PeerAgent(_slime.PeerAgent):
    """Listens, registers with nanoctrl and keeps the lease, connects on first use, serves. Any thread.

    A context manager, for `with` and `async with`; close() works as well, and every agent is closed
    when the process ends.

    name: unique in its scope; empty: a random name.
    scope: agents see the names of their own scope.
    ctrl_url: URL of nanoctrl, "http://host:port", or several with commas; empty: no registry, and
        peers are named by "host:port" only.
    ctrl_token: token for nanoctrl; empty: the content of $SLIME_CTRL_TOKEN_FILE, else
        $SLIME_CTRL_TOKEN, else none.
    ctrl_ca_file: PEM file of CA certificates for an https:// ctrl_url; empty: $SLIME_CTRL_CA_FILE,
        else the certificates of the system.
    listen: the listening address. advertise: the address that peers connect to; empty: the address
        of `listen`.
    provider: "auto" picks for each peer shared memory on one host, else RDMA if both have an active
        port, else tcp; peer.info() shows the choice and its reason. The name of a provider ("tcp",
        "shm", "verbs") picks that provider, or fails with the reason.
    token: a secret shared by all agents, instead of the keys that nanoctrl hands to agents with a
        ctrl_token. insecure: allows listening beyond loopback without `token` and without
        `ctrl_token`.
    progress: Progress.THREAD; or Progress.CALLER: only result(), poll() and serve_forever() make
        progress.
    timeout: default timeout of operations, in seconds; streams have an idle timeout instead.
    kind: kind of the agent ("worker"), by which peers find it.
    heartbeat: interval in seconds; None: as the registry asks.
    report_links: heartbeats report the connections, their bytes and some counters to nanoctrl, for
        its page and /metrics.
    stream_window: most messages of a stream that may arrive and wait to be read, at least 1.
    stream_bytes: most bytes of large messages that are read before the program asks for them; one
        larger message alone is always allowed.
    stream_idle_timeout: seconds without a message after which a stream ends; float("inf"): never.
        The caller's side measures the time between two messages, including the first message and
        the result; the handler's side measures the time that the handler waits in a read or a
        write.
    memory_bytes: most bytes that the process holds for its peers: large requests that are not
        answered yet, and large answers that callers have not read. One connection may hold a
        quarter.
    max_payload_bytes: the largest request, reply or message that this agent reads.
    outage_tolerated: seconds that a peer may be unreachable before its connections end, 1 to 3600;
        None: $SLIME_OUTAGE_TOLERATED, else 5. Both ends of a connection should use the same value.
    verbs: this agent's settings of RDMA, which take the place of the environment's SLIME_VERBS_*
        variables: {"device": "mlx5_1", "port": 1, "gid_index": 3, "traffic_class": 104}.
        docs/operations.md lists them, and devices() the adapters. With a "device" the agent starts
        only if it can use that adapter.
    accepts: keeps the peers that connect, for accept().
    """

    def __init__(
        self,
        name: str = "",
        *,
        scope: str = "default",
        ctrl_url: str = "",
        ctrl_token: str = "",
        ctrl_ca_file: str = "",
        listen: str = "127.0.0.1:0",
        advertise: str = "",
        provider: str = "auto",
        token: str = "",
        insecure: bool = False,
        progress: _slime.Progress = _slime.Progress.THREAD,
        timeout: float = 30.0,
        kind: str = "",
        heartbeat: Optional[float] = None,
        report_links: bool = True,
        max_connections: int = 1024,
        stream_window: int = 64,
        stream_bytes: int = 64 << 20,
        stream_idle_timeout: float = 30.0,
        memory_bytes: int = 10 << 30,
        max_payload_bytes: int = 64 << 30,
        outage_tolerated: Optional[float] = None,
        verbs: Optional[Dict[str, Union[int, bool, str]]] = None,
        accepts: bool = False,
    ) -> None:
        super().__init__(
            name,
            scope=scope,
            ctrl_url=ctrl_url,
            ctrl_token=ctrl_token,
            ctrl_ca_file=ctrl_ca_file,
            listen=listen,
            advertise=advertise,
            provider=provider,
            token=token,
            insecure=insecure,
            progress=progress,
            timeout=timeout,
            kind=kind,
            heartbeat=heartbeat,
            report_links=report_links,
            max_connections=max_connections,
            stream_window=stream_window,
            stream_bytes=stream_bytes,
            stream_idle_timeout=stream_idle_timeout,
            memory_bytes=memory_bytes,
            max_payload_bytes=max_payload_bytes,
            outage_tolerated=outage_tolerated,
            verbs=verbs,
            accepts=accepts,
        )
        self._lock = threading.RLock()
        self._closed = False
        self._servers: list[Server] = []
        self._runner: Optional[AsyncRunner] = None
        self._driver: Optional[_completion.Driver] = None
        self._published: dict[str, _slime.MemoryRegion] = {}
        self._client_interceptors: list[Interceptor] = []
        self._server_interceptors: list[Interceptor] = []
        self._imm_handler: Optional[Callable[[Peer, int], Any]] = None
        self._imm_thread: Optional[threading.Thread] = None
        self._inline_servers: dict[str, Server] = {}
        # Held by the thread that runs inline methods.
        self._inline_lock = threading.Lock()
        self._ended = False  # close() has finished
        # Has an item once stop_serving() was called. A SimpleQueue works in signal handlers, too.
        self._stops: queue.SimpleQueue[None] = queue.SimpleQueue()
        _agents.add(self)

    def peer(self, name_or_address: str) -> Peer:
        """Returns the peer with this name ("worker:0") or address ("host:port"). Does not connect,
        so it cannot fail; the first operation of the peer can."""
        return Peer(self, name_or_address)

    def accept(self, timeout: Optional[float] = None) -> Peer:
        """With accepts=True: waits for the next connection that a peer has opened to this agent, in
        order, and returns the peer of that connection, as Peer.of_connection() does. peer(its name)
        is the peer that connects again. A connection that has ended meanwhile is returned, too.

        timeout: seconds; None: none. Ctrl-C ends the wait. Raises DeadlineExceeded, or Unavailable
        once the agent is closed. Thread: any."""
        return Peer(self._accept(timeout))

    def peer_of(self, connection: int) -> Peer:
        """Returns the peer of a connection, as Peer.of_connection() does.

        connection: its id, from current_call().connection or Peer.info(). Raises NotFound if there
        is no such connection any more. Thread: any."""
        return Peer(self._peer_of(connection))

    # ---- memory

    def empty(
        self,
        shape: Any,
        dtype: Any = "float64",
        rights: _slime.Rights = _slime.Rights.LOCAL,
        pages: _slime.Pages = _slime.Pages.DEFAULT,
    ) -> Any:
        """Returns a zeroed NumPy array in new registered memory; slime.region_of(array) is its region."""
        return _memory.empty(self, shape, dtype, rights, pages)

    def publish(self, name: str, region: Any) -> None:
        """Publishes a region, or the region of an array from empty(), under a name. The agent keeps
        the region alive."""
        owner = region if isinstance(region, _slime.MemoryRegion) else _memory.region_of(region)
        super().publish(name, owner)
        self._published[name] = owner

    def unpublish(self, name: str) -> None:
        """Removes a region's name from the published names: peers no longer find the region by this
        name."""
        super().unpublish(name)
        self._published.pop(name, None)

    # ---- services

    def serve(
        self,
        target: Any,
        name: Optional[str] = None,
        *,
        workers: int = 4,
        queue_limit: int = 1024,
        tracebacks: bool = False,
    ) -> None:
        """Serves the methods of `target` that are marked with @slime.method, to every peer.

        Plain methods run on `workers` threads, several at once; async methods run on one asyncio
        loop, in a thread of the agent; inline methods of an agent with Progress.CALLER run in the
        thread that is inside serve_forever() or poll(). At most `queue_limit` requests wait, and at most
        `queue_limit` async calls run at once; further calls end with ResourceExhausted. An
        exception of a handler reaches the caller: a slime.Error with its code, any other exception
        as Internal, with its traceback if `tracebacks`. Other exceptions are also logged here with
        their traceback (logger "slime", level error).
        """
        inline = self.progress == _slime.Progress.CALLER
        name = name or type(target).__name__
        server = Server(target, name, workers, queue_limit, tracebacks, self._async_runner, inline)
        server.interceptors = self._server_interceptors
        with self._lock:
            if server.inline and name not in self._inline_servers:
                self._inline_servers[name] = server  # known before the first request comes
            try:
                self._serve_raw(server.service)
            except BaseException:
                if self._inline_servers.get(name) is server:
                    del self._inline_servers[name]
                raise
            self._servers.append(server)
            server.start()
            _busy.add(self)

    def poll(self, budget: float = 0.0) -> bool:
        """Progress.CALLER only: runs due work, and the inline methods whose requests have arrived;
        waits up to `budget` seconds (0.1 at most) if there is no work. Returns whether anything ran.

        Inside an inline method, and while another thread runs them, runs no inline methods."""
        if not self._inline_lock.acquire(False):
            return self._poll(budget)
        try:
            request = self._turn(budget, False)
            if isinstance(request, bool):
                return request
            try:
                while request is not None:
                    self._inline_servers[request.service].run_inline(request)
                    request = self._take_inline()
            finally:
                self._send_answers()
            return True
        finally:
            self._inline_lock.release()

    def serve_forever(self) -> None:
        """Serves until close() or stop_serving() of another thread, or Ctrl-C: KeyboardInterrupt
        leaves this function within about 0.1 s. After close() it returns at once.

        With Progress.CALLER this thread makes the agent's progress and runs its inline methods, one
        at a time, and holds the GIL only while it runs them. Other threads must not poll() meanwhile.
        Raises InvalidArgument if another thread serves this agent already, and inside an inline
        method. With another progress the agent's own thread serves, and this thread waits."""
        if self.progress != _slime.Progress.CALLER:
            if self.forked:
                raise Unavailable("this agent belongs to the parent process; make a new one in the child after fork()")
            if not self._ended:
                self._stops.get()
                if self._ended:
                    self._stops.put(None)  # for other threads that serve until close()
            return
        if not self._inline_lock.acquire(False):
            raise InvalidArgument("another thread serves this agent, or this is inside an inline method")
        try:
            turn, stopped, servers = self._turn, self._stops.qsize, self._inline_servers
            # After close() has begun, goes on until it has ended, so that requests in flight are
            # answered.
            while not (stopped() or self._ended):
                request = turn(0.1, True)
                if request is not True and request is not False:
                    servers[request.service].run_inline(request)
                    del request  # releases its memory before the next wait
            if not self._stops.empty():
                self._stops.get()
        finally:
            self._send_answers()
            self._inline_lock.release()

    def stop_serving(self) -> None:
        """Ends the serve_forever() that is running, after the inline method that it runs, or else the
        next one. The agent goes on. May be called on any thread, and in a signal handler."""
        if self.forked:
            return
        if self._stops.empty():
            self._stops.put(None)
        self._wake()

    def _send_answers(self) -> None:
        """Sends the answers of inline methods: the next turn may come late, or never."""
        for _ in range(_LAST_TURNS):
            if not self._poll(0):
                return

    def proxy(
        self,
        service: str,
        timeout: Optional[float] = None,
        *,
        balance: str = "least-in-flight",
        key: str = "",
        idempotent: Union[bool, Iterable[str]] = False,
        retry: Optional[Retry] = None,
        wait_for_ready: bool = False,
        metadata: Optional[Mapping[str, str]] = None,
    ) -> Proxy:
        """Returns a proxy whose calls go to a live server of the service and wait for the result:
        `agent.proxy("Calc").add(1, 2)`. nanoctrl lists the servers.

        A call that was certainly not executed goes to the next server, within `timeout` seconds
        (None: the agent's default). A server that failed is avoided for a short while. Raises
        Unavailable when no server is left.

        balance: "least-in-flight": the server with the fewest calls of this agent; "round-robin";
            "sticky": one server until it fails; with a `key`, the server that the key's hash
            selects, which is the same server for every caller.
        idempotent: True, or the names of methods that may be executed twice without harm: calls
            that may have been executed are repeated as `retry` says. Calls of other methods are not
            repeated.
        wait_for_ready: calls wait for a server instead of failing fast.
        metadata: entries that each call carries, as with Peer.with_metadata().
        """
        servers = AnyServer(self, service, balance, key, idempotent, retry, wait_for_ready, metadata)
        return Proxy(servers, service, timeout)

    def async_proxy(self, service: str, timeout: Optional[float] = None, **options: Any) -> AsyncProxy:
        """Like proxy(), with the same options, but calls return awaitables: `await
        agent.async_proxy("Calc").add(1, 2)`."""
        return AsyncProxy(self.proxy(service, **options)._peer, service, timeout)

    def add_server_interceptor(self, interceptor: Interceptor) -> None:
        """Adds an interceptor for calls of Python services that this agent serves, beginning with
        the next call. Interceptors run in the order in which they were added. They do not see calls
        of slime.Reflection and slime.Health, which C++ serves."""
        self._server_interceptors.append(interceptor)

    def add_client_interceptor(self, interceptor: Interceptor) -> None:
        """Adds an interceptor for calls that this agent makes, beginning with the next call.
        Interceptors run in the order in which they were added."""
        self._client_interceptors.append(interceptor)

    def on_imm(self, handler: Callable[[Peer, int], Any]) -> None:
        """Calls handler(peer, number) for each notification, one at a time, on a thread of its own.
        Replaces an earlier handler. While more than 4096 notifications wait for the handler, peers run
        out of credits and stop sending; no notification is dropped."""
        with self._lock:
            self._imm_handler = handler
            if self._imm_thread is None:
                self._start_imms()
                self._imm_thread = threading.Thread(target=self._run_imms, name="slime-imm", daemon=True)
                self._imm_thread.start()
                _busy.add(self)

    def _run_imms(self) -> None:
        while True:
            item = self._next_imm()
            if item is None:
                return
            peer, imm = item
            handler = self._imm_handler
            try:
                if handler is not None:
                    handler(Peer(peer), imm)
            except BaseException as error:  # SystemExit too: the thread goes on
                log_failure(_log, error, "the on_imm handler failed")

    def _async_runner(self) -> AsyncRunner:
        with self._lock:
            if self._runner is None:
                self._runner = AsyncRunner()
            return self._runner

    def _drive(self, future: _slime.Future) -> None:
        with self._lock:
            if self._driver is None:
                self._driver = _completion.Driver()
                _busy.add(self)
            self._driver.add(future)

    # ---- what there is

    def list_peers(self, timeout: float = 5.0) -> list[RegisteredPeer]:
        """Returns nanoctrl's list of this scope's peers, with their services and regions."""
        return json.loads(self._list_peers_json(timeout))

    def info(self) -> AgentInfo:
        """Returns the agent's options and state, its registration, its peers, its oldest operations,
        and counters."""
        return json.loads(self._info_json())

    # ---- the end

    def close(self, timeout: float = 2.0) -> None:
        """Deregisters, refuses new work, finishes operations in flight within `timeout` seconds,
        and closes every connection and region. Afterwards no peer can access this agent's memory.
        Raises DeadlineExceeded, and still closes, if operations were cut off. A handler that is
        running goes on, and its answer is dropped. Later calls, and calls in a forked child, do
        nothing."""
        if self.forked:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        deadline = time.monotonic() + timeout
        try:
            self._close_agent(timeout)
        finally:
            self._end_threads(deadline)

    def _close_and_log(self, timeout: float = 2.0) -> None:
        """Closes the agent. Logs an error of close(), because no caller could handle it."""
        try:
            self.close(timeout)
        except DeadlineExceeded as error:
            _log.warning("%s closed: %s", self.name, error.text)

    def _end_threads(self, deadline: float) -> None:
        self._ended = True
        self.stop_serving()
        with_threads = [each for each in (*self._servers, self._runner, self._driver) if each is not None]
        for each in with_threads:
            each.end()
        for each in with_threads:
            each.join(deadline)
        if self._imm_thread is not None:
            _completion.join_until(self._imm_thread, deadline)
        self._published.clear()
        _busy.discard(self)
        _agents.discard(self)

    @property
    def closed(self) -> bool:
        return self._closed

    def __enter__(self) -> PeerAgent:
        return self

    def __exit__(self, *_: Any) -> None:
        self._close_and_log()

    async def __aenter__(self) -> PeerAgent:
        return self

    async def __aexit__(self, *_: Any) -> None:
        """Closes the agent on another thread, so that the event loop goes on. If the awaiting task
        is cancelled, the task stops waiting, but the agent closes nevertheless."""
        loop = asyncio.get_running_loop()
        closed = loop.create_future()

        def close() -> None:
            self._close_and_log()
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(lambda: closed.done() or closed.set_result(None))

        # Starts a thread instead of using the event loop's executor: all threads of the executor
        # may be waiting for operations of this agent.
        threading.Thread(target=close, name="slime-close").start()
        await asyncio.shield(closed)

    def __repr__(self) -> str:
        if "_closed" not in self.__dict__:
            return "<slime.PeerAgent that did not start>"
        return "<slime.PeerAgent of the parent process>" if self.forked else f"<slime.PeerAgent {self.name!r}>"


def _close_all() -> None:
    # This function runs before the interpreter ends. Afterwards no Python thread may run, but
    # closing an agent needs Python. All agents share the time: a peer that is frozen uses up all of
    # it.
    deadline = time.monotonic() + _EXIT_SECONDS
    for agent in list(_agents):
        try:
            agent._close_and_log(max(_EXIT_SECONDS_LEAST, deadline - time.monotonic()))
        except BaseException as error:
            log_failure(_log, error, "closing %r at the end of the process", agent)
    deadline = time.monotonic() + 2
    _completion.close(deadline)
    _attachments.close(deadline)
    _slime.wait_for_helpers(deadline - time.monotonic())


def _after_fork() -> None:
    _agents.clear()
    _busy.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)
