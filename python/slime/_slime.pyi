"""The C++ side of the package slime. Use the package."""

from collections.abc import Callable, Generator, Iterable, Sequence
import enum
from typing import Any, Generic, TypeVar, overload


def version() -> str: ...

class Code(enum.IntEnum):
    """Tells the caller of a failed operation what to do next."""

    OK = 0

    INVALID_ARGUMENT = 1
    """fix the call"""

    NOT_FOUND = 2
    """branch on it"""

    ALREADY_EXISTS = 3
    """branch on it"""

    PERMISSION_DENIED = 4
    """get rights"""

    UNAUTHENTICATED = 5
    """get rights"""

    RESOURCE_EXHAUSTED = 6
    """back off, then retry"""

    UNIMPLEMENTED = 7
    """fall back"""

    DEADLINE_EXCEEDED = 8
    """outcome unknown; retry only if idempotent"""

    CANCELLED = 9
    """you asked for it"""

    ABORTED = 10
    """the peer restarted: redo from a higher level"""

    UNAVAILABLE = 11
    """retry if idempotent or if not maybe_executed"""

    CORRUPT = 12
    """drop the peer"""

    INTERNAL = 13
    """report a bug"""

class LogLevel(enum.Enum):
    DEBUG = 0

    INFO = 1

    WARNING = 2

    ERROR = 3

    OFF = 4

def set_log_level(level: LogLevel) -> None:
    """How much Slime writes to stderr."""

def wait_for_helpers(timeout: float) -> bool: ...

class CompletionQueue:
    """Numbers of finished futures."""

    def __init__(self) -> None: ...

    def fileno(self) -> int: ...

    def take(self) -> list[int]:
        """Returns the numbers that have arrived."""

    def wait(self) -> bool:
        """Waits until take() has a number to return. Returns False once closed."""

    def close(self) -> None: ...

T = TypeVar("T")

class Future(Generic[T]):
    """
    The outcome of an operation: result() waits for it, and asyncio awaits it. Any thread.
    """

    def __init__(self, other: Future[T]) -> None:
        """Makes a future of the same outcome."""

    def result(self, timeout: float | None = None) -> T:
        """
        Waits, and returns the value or raises the error. May be called again.

        timeout: seconds; None: no limit. After it WaitTimeout is raised; the operation goes on.
        KeyboardInterrupt ends the wait, and cancels a call.
        """

    def exception(self, timeout: float | None = None) -> Exception | None:
        """
        Waits like result(). Returns the error that result() raises (slime.Cancelled too), or None.

        A received message is not taken. Raises WaitTimeout after `timeout` seconds.
        """

    def wait_done(self, timeout: float | None = None) -> bool:
        """
        Waits like result(), but takes nothing and raises no error of the operation. Returns False after
        `timeout` seconds.
        """

    def done(self) -> bool:
        """Returns whether the operation has ended. Does not wait."""

    def cancel(self) -> None:
        """
        Asks the operation to end early. The future still completes: with slime.Cancelled, or
        with an earlier outcome.
        """

    def add_done_callback(self, callback: Callable[[Future[T]], Any]) -> None:
        """
        Calls callback(self) once the operation has ended, on a thread of Slime. An exception of the
        callback is logged.
        """

    def __await__(self) -> Generator[Any, None, T]: ...

    @property
    def agent(self) -> PeerAgent:
        """The agent of the operation."""

class WaitSet:
    """Follows futures until they have ended. See slime.as_completed()."""

    def __init__(self, futures: Iterable[Future]) -> None: ...

    def wait_all(self, timeout: float | None = None) -> bool:
        """
        Waits until all futures are done. Returns False after `timeout` seconds.
        """

    def wait_any(self, timeout: float | None = None) -> int | None:
        """
        Waits until a future is done. Returns the least number of such a future; None after
        `timeout` seconds, or if there is no future.
        """

    def next(self, timeout: float | None = None) -> int | None:
        """
        Waits for a future that next() has not returned yet, and returns its number; None if
        none is left. Raises WaitTimeout after `timeout` seconds.
        """

class Rights(enum.Flag):
    """Rights of peers on a region."""

    LOCAL = 0
    """nothing: only the local side of this process's own operations"""

    REMOTE_READ = 1

    REMOTE_WRITE = 2

    READ_WRITE = 3

class Pages(enum.Enum):
    """The kind of pages of memory that Slime allocates."""

    DEFAULT = 0

    HUGE = 1
    """huge pages, from the machine's pool (vm.nr_hugepages)"""

class MemoryRegion:
    """
    One registration of memory. Has the buffer protocol: memoryview(region) is its memory.
    """

    @property
    def length_bytes(self) -> int: ...

    def __len__(self) -> int: ...

    @property
    def address(self) -> int:
        """The address of the first byte, in this process."""

    @property
    def rights(self) -> Rights: ...

    @property
    def readonly(self) -> bool: ...

    @property
    def closed(self) -> bool: ...

    def close(self, timeout: float = 2.0) -> None:
        """
        Ends the registration: after close() has returned, no peer touches the memory.
        Idempotent. Memory that Slime allocated stays mapped until the last view of it is
        gone.
        """

    def __enter__(self) -> MemoryRegion: ...

    def __exit__(self, *args: Any) -> None: ...

    def __repr__(self) -> str: ...

class RemoteRegion:
    """
    A peer's region as one connection sees it. Invalid once that connection has ended.
    """

    @property
    def length_bytes(self) -> int: ...

    def __len__(self) -> int: ...

    @property
    def rights(self) -> Rights: ...

    def __repr__(self) -> str: ...

class Copy:
    """
    One block: for read, bytes go remote -> local; for write, local -> remote.
    """

    def __init__(self, local: Any, local_offset: int, remote: RemoteRegion, remote_offset: int, length_bytes: int) -> None:
        """
        `local` is a MemoryRegion, or an array from agent.empty() or a view of one.
        `local_offset` counts from the first byte of the region or array.
        """

    @property
    def local(self) -> MemoryRegion: ...

    @property
    def local_offset(self) -> int: ...

    @property
    def remote(self) -> RemoteRegion: ...

    @property
    def remote_offset(self) -> int: ...

    @property
    def length_bytes(self) -> int: ...

    def __repr__(self) -> str: ...

class Progress(enum.Enum):
    """The thread that makes progress."""

    THREAD = 0
    """a thread of the agent's own"""

    CALLER = 1
    """result() and poll(), in the caller: no hand-over between threads"""

    POLLED = 2
    """
    a thread; a caller that polls wait_done() carries out the operations that it began,
    of any size
    """

class PeerAgent:
    """See slime.PeerAgent."""

    def __init__(self, name: str = '', *, scope: str = 'default', ctrl_url: str = '', ctrl_token: str = '', ctrl_ca_file: str = '', listen: str = '127.0.0.1:0', advertise: str = '', provider: str = 'auto', token: str = '', insecure: bool = False, progress: Progress = Progress.THREAD, timeout: float = 30.0, kind: str = '', heartbeat: float | None = None, report_links: bool = True, max_connections: int = 1024, stream_window: int = 64, stream_bytes: int = 67108864, stream_idle_timeout: float = 30.0, memory_bytes: object = 10737418240, max_payload_bytes: object = 68719476736, outage_tolerated: float | None = None, verbs: object | None = None, accepts: bool = False) -> None: ...

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str:
        """The address that peers connect to."""

    @property
    def instance(self) -> str: ...

    @property
    def progress(self) -> Progress: ...

    @property
    def forked(self) -> bool:
        """True in a child that was forked after the agent was made."""

    def allocate(self, bytes: int, rights: Rights = ..., pages: Pages = ...) -> MemoryRegion:
        """
        Allocates zeroed registered memory. Huge pages are all taken now, from the machine's
        pool; ResourceExhausted says how many the pool lacks, and what to do.
        """

    def register_memory(self, buffer: Any, rights: Rights = ...) -> MemoryRegion:
        """
        Registers host memory of a contiguous object with the buffer protocol, DLPack or
        __array_interface__. The region keeps the object alive and in place until the region
        is closed.
        """

    def register_address(self, address: int, bytes: int, rights: Rights = ...) -> MemoryRegion:
        """
        Registers host memory by its address, as C libraries give it. The caller keeps the
        memory alive and in place until the region is closed. Raises InvalidArgument if a part
        of the range is not mapped or not readable now.
        """

    def publish(self, name: str, region: MemoryRegion) -> None:
        """Publishes a region under a name, by which peers ask this agent for it."""

    def unpublish(self, name: str) -> None: ...

    @staticmethod
    def provider_names() -> list[str]:
        """Returns the values of `provider` in this build: "auto", "tcp", ..."""

    def drain(self, timeout: float) -> None:
        """Refuses new requests, and waits for running handlers."""

class Peer:
    """
    A peer by name or address. Connects on first use, and again after a break.
    """

    @overload
    def __init__(self, agent: PeerAgent, name: str) -> None: ...

    @overload
    def __init__(self, other: Peer) -> None: ...

    @property
    def name(self) -> str: ...

    @property
    def connection(self) -> int:
        """Id of the connection if this is the peer of one connection; else 0."""

    @property
    def agent(self) -> PeerAgent: ...

    def connect(self, timeout: float | None = None) -> Future[None]:
        """Connects now, for warm-up."""

    def region(self, name: str, timeout: float | None = None) -> RemoteRegion:
        """
        Asks the peer for a region by its published name, and waits. Cached for the connection; after a
        reconnect ask again: the old one answers Aborted.
        """

    def with_timeout(self, timeout: float) -> Peer:
        """Returns a Peer with another default timeout, in seconds."""

    def with_signature(self, signature: str) -> Peer:
        """
        Returns a Peer whose calls require the server's method to match `signature`; otherwise
        Unimplemented, and nothing was executed.
        """

    def wait_for_ready(self) -> Peer:
        """
        Returns a Peer whose operations wait for an unreachable peer, up to their timeout, instead of
        failing fast.
        """

    def disconnect(self) -> None:
        """
        Closes the connection, if any, for all that use it; the next use connects again.
        """

    def read(self, copies: Copy | Iterable[Any], timeout: float | None = None) -> Future[None]:
        """
        Moves the blocks of a list of Copy with one one-sided operation. The local regions stay
        open until the operation has ended. Source bytes must not change until the future is done.
        """

    def write(self, copies: Copy | Iterable[Any], timeout: float | None = None) -> Future[None]:
        """
        Moves the blocks of a list of Copy with one one-sided operation. The local regions stay
        open until the operation has ended. Source bytes must not change until the future is done.
        """

    def write_with_imm(self, copies: Copy | Iterable[Any], imm: int, timeout: float | None = None) -> Future[None]:
        """
        Like write(). The peer's on_imm handler gets `imm` once, after all bytes of the batch
        are visible there.
        """

    def fetch_add(self, remote: RemoteRegion, remote_offset: int, add: int, timeout: float | None = None) -> Future[int]:
        """
        Adds `add` to the unsigned number of 8 bytes at `remote_offset`, modulo 2**64, so a
        negative `add` subtracts. The future's value is the old number. Atomic among the
        atomics of all peers on this number, but not against the peer's own CPU. The number
        must be aligned to 8 bytes in the peer's memory. Needs Rights.READ_WRITE.
        """

    def compare_swap(self, remote: RemoteRegion, remote_offset: int, expected: int, desired: int, timeout: float | None = None) -> Future[int]:
        """
        Like fetch_add(), but stores `desired` if the number equals `expected`. The future's
        value is the old number in both cases.
        """

    def send(self, tag: int, bytes: Any, timeout: float | None = None) -> Future[None]:
        """
        Sends a message of any size; messages with one tag arrive in order. Copies the bytes.
        Done once the peer's agent has the message.
        """

    def read_blocks(self, local: Any, remote: RemoteRegion, local_ids: Any, remote_ids: Any, block_bytes: int, local_offset: int = 0, remote_offset: int = 0, timeout: float | None = None) -> Future[None]:
        """
        Moves blocks by number with one one-sided operation: block i is at local_offset +
        local_ids[i] * block_bytes of `local`, and at remote_offset + remote_ids[i] * block_bytes of
        `remote`. Numbers are NumPy arrays of int64, uint64, int32 or uint32, or sequences of ints; they
        are copied. `local` is as for Copy; it stays open until the operation has ended. Source bytes
        must not change until the future is done. InvalidArgument names the first wrong block.
        """

    def write_blocks(self, local: Any, remote: RemoteRegion, local_ids: Any, remote_ids: Any, block_bytes: int, local_offset: int = 0, remote_offset: int = 0, timeout: float | None = None) -> Future[None]:
        """
        Moves blocks by number with one one-sided operation: block i is at local_offset +
        local_ids[i] * block_bytes of `local`, and at remote_offset + remote_ids[i] * block_bytes of
        `remote`. Numbers are NumPy arrays of int64, uint64, int32 or uint32, or sequences of ints; they
        are copied. `local` is as for Copy; it stays open until the operation has ended. Source bytes
        must not change until the future is done. InvalidArgument names the first wrong block.
        """

    def prepare(self, transfer: Transfer, copies: Copy | BlockOffsets | BlockStrides | Iterable[Any]) -> PreparedBatch:
        """
        Checks and binds a batch for many posts. Does not connect. InvalidArgument and PermissionDenied
        name the first wrong block.
        """

class Transfer(enum.Enum):
    """The direction of a batch."""

    READ = 0
    """remote -> local"""

    WRITE = 1
    """local -> remote"""

class BlockOffsets:
    """
    Blocks of one length: block i is at local_offsets[i] and at remote_offsets[i].
    """

    def __init__(self, local: Any, local_offsets: Any, remote: RemoteRegion, remote_offsets: Any, length_bytes: int) -> None:
        """
        Offsets are NumPy arrays of int64, uint64, int32 or uint32, or sequences of ints; they
        are copied. `local` is as for Copy. `length_bytes` is the length of each block.
        """

    def __len__(self) -> int: ...

class BlockStrides:
    """
    Blocks of one length at equal distances: block i is at offset + i * stride.
    """

    def __init__(self, local: Any, local_offset: int, local_stride: int, remote: RemoteRegion, remote_offset: int, remote_stride: int, count: int, length_bytes: int) -> None:
        """`local` is as for Copy. `length_bytes` is the length of each block."""

    def __len__(self) -> int: ...

class PreparedBatch:
    """
    A batch of copies with one peer, which peer.prepare() checks and binds once, and which is
    posted many times. Posts may overlap; each is one operation, like peer.read(). Keeps its
    local regions open. After the connection has ended, a post ends with Aborted: ask for the
    regions again, then rebind().
    """

    def post(self, blocks: Any | None = None, timeout: float | None = None, stall: float | None = None) -> Future[None]:
        """
        Starts the transfer of all blocks, or of those with these numbers (a NumPy array or ints; 0 is
        the first). Bytes that are written must not change until the future is done.
        `stall`: also ends with DeadlineExceeded when the connection moves no bytes of transfers for so
        many seconds. With it, timeout=math.inf means no timeout.
        """

    def post_with_imm(self, imm: int, blocks: Any | None = None, timeout: float | None = None, stall: float | None = None) -> Future[None]:
        """
        Like post(), for a batch that writes. Afterwards the peer's on_imm handler gets `imm`
        once.
        """

    def rebind(self, remotes: Iterable[RemoteRegion]) -> None:
        """Replaces `remotes` by these regions, in order, for later posts."""

    @property
    def remotes(self) -> list[RemoteRegion]:
        """The remote regions in the order in which the blocks first name them."""

    @property
    def length_bytes(self) -> int:
        """Total of all blocks."""

    def __len__(self) -> int: ...

    def __repr__(self) -> str: ...

class StreamEnd:
    """One end of a stream, with messages as bytes."""

    def write(self, message: Any) -> Future:
        """
        Copies the message. The future is done once the message is accepted: wait for it
        before the next write.
        """

    def read(self, decode: Callable[[Payload | None], Any] | None = None) -> Future:
        """
        Reads the next message: decode(Payload), or the Payload. After the last message:
        decode(None), or None.
        """

    def close_writing(self) -> None:
        """Ends the messages of this side."""

    def start_reading(self) -> None:
        """Lets the other side write from now on, before the first read."""

    def cancel(self) -> None:
        """For the caller's end: ends the stream now, on both sides."""

    def drop(self) -> None:
        """
        For the caller's end: cancels the stream and drops unread messages, as the destructor
        does.
        """

class ServiceProxy:
    """
    Calls any server of a service in the agent's scope. See slime.PeerAgent.proxy().
    """

    def __init__(self, agent: PeerAgent, service: str, balance: str = "least-in-flight", key: str = "", timeout: float | None = None, wait_for_ready: bool = False) -> None: ...

    def idempotent(self, attempts: int, backoff: float, backoff_max: float, attempt_timeout: float | None = None) -> ServiceProxy:
        """
        Returns this proxy with repetition of calls that may have been executed.
        """

    def with_signature(self, signature: str) -> ServiceProxy:
        """Like Peer.with_signature()."""

    def call_value(self, method: str, arguments: tuple, timeout: float | None = None) -> Future | None:
        """
        Calls a method with values that C++ can encode. Returns None, and sends nothing, for
        other values.
        """

    def call_now(self, method: str, arguments: tuple, timeout: float | None) -> Any:
        """Like _slime.call_now()."""

    def call_raw(self, method: str, arguments: Any, timeout: float | None = None, decode: Callable[[Payload], Any] | None = None, metadata: Sequence[tuple[str, str, bool]] | None = None, timing: bool = False, as_bytes: bool = False) -> Future:
        """Like Peer._call_raw(); the timing covers all attempts together."""

    def call_attached(self, method: str, arguments: Any, attached: AttachedBody, timeout: float | None = None, decode: Callable[[Payload], Any] | None = None, metadata: Sequence[tuple[str, str, bool]] | None = None, timing: bool = False) -> Future:
        """Like Peer._call_attached()."""

    def one_way_raw(self, method: str, arguments: Any, timeout: float | None = None, metadata: Sequence[tuple[str, str, bool]] | None = None, timing: bool = False, attached: AttachedBody | None = None, as_bytes: bool = False) -> Future:
        """Like Peer._one_way_raw()."""

def dump() -> str:
    """
    Returns a description of every agent of this process and of its operations, in lines for
    people.
    """

def dump_on_signal(number: int = 10) -> None:
    """
    Makes this process write dump() to stderr at each such signal, without stopping.
    """

class Payload:
    """
    Received bytes. Has the buffer protocol: memoryview(payload), bytes(payload).
    """

    def __len__(self) -> int: ...

    def attachment(self, data: bytes) -> Attachment:
        """
        Returns the attachment to which an extension value in the bytes refers, by the value's
        data.
        """

    def drop_attachments(self) -> None:
        """
        Drops the payload's own references to its attachments. Attachments that were returned
        before stay.
        """

def signature_hash(signature: str) -> int:
    """
    Returns the hash of a signature such as "(int, str?) -> bool", as sent on the wire. 0:
    the signature contains "any", and is not checked.
    """

class Priority(enum.Enum):
    """Order of the requests that wait for a worker."""

    HIGH = 0

    NORMAL = 1

    LOW = 2

class Request:
    """A request that waits for its answer."""

    @property
    def peer(self) -> str:
        """The caller's name."""

    @property
    def connection(self) -> int:
        """Id of the connection that the request came over."""

    @property
    def service(self) -> str: ...

    @property
    def method(self) -> str: ...

    def seconds_left(self) -> float | None:
        """Returns the seconds until the caller's deadline; None: no deadline."""

    @property
    def queue_ns(self) -> int:
        """Time for which the request waited for a worker, in nanoseconds."""

    def metadata(self) -> dict[str, str]:
        """The caller's metadata."""

    def cancelled(self) -> bool:
        """Returns whether the caller no longer waits."""

    def watch_cancel(self) -> int:
        """
        Returns the number that Service.take_cancelled() returns when the request is cancelled.
        """

    def stream(self) -> StreamEnd | None:
        """
        Returns the handler's end of the request's stream; None: a plain call, or the stream
        has ended.
        """

    def take_payload(self) -> Payload:
        """Returns the encoded arguments. Call once."""

    def arguments(self) -> list | None:
        """
        Returns the arguments. Call once. None: only Python can decode them; use
        take_payload().
        """

    def reply_value(self, value: Any, late: bool = False) -> bool:
        """
        Answers with a value. Returns False, and answers nothing, if only Python can encode
        the value. `late`: the answer may wait until Service.take() gets this request.
        """

    def reply(self, body: Any, attached: AttachedBody | None = None) -> None: ...

    def fail(self, code: Code, text: str, executed: bool) -> None: ...

class Service:
    """Named methods; their requests wait for Python workers."""

    def __init__(self, name: str, methods: Sequence[tuple[str, Sequence[tuple[str, str, bool, bool]], str, str, int, Priority, str, str, bool]], queue_limit: int) -> None: ...

    def take(self, answered: Request | None = None) -> Request | None:
        """
        Waits for a request. Returns None once closed. `answered`: the request that this thread has
        taken before; its late answer is sent.
        """

    def cancel_fd(self) -> int:
        """
        Returns a descriptor that is readable while take_cancelled() has numbers to return.
        """

    def take_cancelled(self) -> list[int]:
        """Returns the numbers of requests that were cancelled."""

    def close(self) -> None: ...

def drain_released() -> None:
    """Releases Python memory that was lent and is no longer in use."""

def wait_released() -> bool:
    """
    Waits until drain_released() has memory to release. Returns False once closed.
    """

def close_released() -> None: ...

class AttachedBody:
    """The attachments of the arguments or the result of a call."""

    def __init__(self) -> None: ...

    def add(self, object: Any, memory: MemoryRegion | Attachment | None, dtype: str | None, shape: Sequence[int]) -> bytes:
        """
        Adds an attachment. Returns the data of the extension value that refers to it.
        """

    def add_into(self, object: Any, region: MemoryRegion | None) -> None:
        """Names the memory into which the next attachment of the reply is read."""

class Attachment:
    """
    An attachment of the arguments or the result of a call, in the memory where it was
    received. Has the buffer protocol. The memory is released by release(), or when this
    object and every view of it are gone.
    """

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def dtype(self) -> str | None:
        """
        The dtype of an array ("<f4"), as the sender gave it; None: plain bytes.
        """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def released(self) -> bool: ...

    def release(self) -> None:
        """
        Releases the memory now. Raises InvalidArgument while arrays or views of it exist.
        Idempotent.
        """

    def discard(self) -> None:
        """
        Frees the pages of large received memory now, even while views exist: they read as zeros then. Memory
        that the call named (`into`) stays.
        """

    def __enter__(self) -> Attachment: ...

    def __exit__(self, *args: Any) -> None: ...

    def __repr__(self) -> str: ...

def call_now(peer: Peer, service: str, method: str, arguments: tuple, timeout: float | None) -> Any:
    """
    Calls a method with values that C++ can encode, waits, and returns the result. Returns
    NotImplemented, and sends nothing, for other values. Ctrl-C cancels the call.
    """

def call_value(peer: Peer, service: str, method: str, arguments: tuple, timeout: float | None = None) -> Future | None:
    """
    Calls a method with values that C++ can encode. Returns None, and sends nothing, for
    other values.
    """

def decode_value(payload: Payload) -> Any:
    """
    Decodes a value. Returns NotImplemented if only Python can decode it, and for bytes that
    are not a value.
    """

class CacheClient:
    """A client of one cache."""

    def __init__(self, agent: PeerAgent, server: str, timeout: float | None = None) -> None: ...

    def info(self, namespace: str, key: str | bytes) -> dict:
        """
        Returns version, length, checksum and pinned of an object, without reading its bytes.
        """

    def exists(self, namespace: str, key: str | bytes) -> bool: ...

    def remove(self, namespace: str, key: str | bytes) -> None:
        """Removes an object. Raises NotFound if there is none."""

    def pin(self, namespace: str, key: str | bytes) -> None:
        """
        Pins an object, so that it is not evicted. The pin belongs to the object, not to the
        client that set it.
        """

    def unpin(self, namespace: str, key: str | bytes) -> None: ...

class KvOrder(enum.Enum):
    """The order of the numbers of a block."""

    NHD = 0
    """tokens, then heads"""

    HND = 1
    """heads, then tokens"""

class KvForm(enum.Enum):
    """The regions of a layer."""

    APART = 0
    """one of keys and one of values"""

    FUSED = 1
    """one, in which each block has its keys, then its values"""

    LATENT = 2
    """one latent cache (MLA), without values and heads"""

class KvGeometry:
    """
    The shape of the paged KV cache of one process: a rank of tensor parallelism, and a range of
    the model's layers. Cannot be changed.

    heads: KV heads of the model, of all ranks together. head_bytes: for each token and head, the
    head dimension x the size of a number. scale_bytes: scales for each token and head, in regions
    of their own.
    """

    def __init__(self, *, layers: int, blocks: int, block_tokens: int, heads: int, head_bytes: int, first_layer: int = 0, scale_bytes: int = 0, order: KvOrder = ..., form: KvForm = ..., tp_degree: int = 1, tp_rank: int = 0) -> None:
        """Raises InvalidArgument, which names the first wrong field."""

    @property
    def first_layer(self) -> int: ...

    @property
    def layers(self) -> int: ...

    @property
    def blocks(self) -> int: ...

    @property
    def block_tokens(self) -> int: ...

    @property
    def heads(self) -> int: ...

    @property
    def head_bytes(self) -> int: ...

    @property
    def scale_bytes(self) -> int: ...

    @property
    def order(self) -> KvOrder: ...

    @property
    def form(self) -> KvForm: ...

    @property
    def tp_degree(self) -> int: ...

    @property
    def tp_rank(self) -> int: ...

    def rank_heads(self) -> tuple[int, int]:
        """Returns the first head of this rank, and the number of its heads."""

    def regions(self) -> list[tuple[str, int]]:
        """Returns name and block bytes of each region of a layer."""

    def block_bytes(self) -> int:
        """Bytes of a block of one layer, in all its regions."""

    def layer_bytes(self) -> int:
        """Bytes of all blocks of one layer."""

    def encode(self) -> bytes:
        """Returns the geometry as bytes, for decode()."""

    @staticmethod
    def decode(bytes: bytes) -> KvGeometry:
        """Returns the geometry of encode(). Raises InvalidArgument."""

    def __eq__(self, other: object) -> bool: ...

    def __hash__(self) -> int: ...

    def __str__(self) -> str: ...

    def __repr__(self) -> str: ...

def kv_map_blocks(local: KvGeometry, remote: KvGeometry) -> tuple: ...

def kv_sources_of(arg0: KvGeometry, arg1: object, /) -> list: ...

def kv_targets_of(arg0: KvGeometry, arg1: object, /) -> list: ...

class KvLayerQueue:
    """Layers that have arrived."""

    def take(self) -> object: ...

class KvCache:
    """The paged KV cache of this process."""

    def __init__(self, agent: PeerAgent, geometry: KvGeometry, memory: list, name: str, rights: Rights) -> None: ...

    @property
    def geometry(self) -> KvGeometry: ...

    @property
    def name(self) -> str: ...

    def wait_layer(self, request: int, layer: int, timeout: float | None = None) -> None:
        """
        Waits until peers have written all heads of this layer (the model's number), with this
        request's number. Raises DeadlineExceeded after `timeout` seconds; Cancelled after forget();
        Unavailable after close().
        """

    def forget(self, request: int) -> None:
        """
        Forgets the layers of a request, so that its number can be used again. Call it when no writer
        works on the request any more: a layer that arrives later is remembered again. The cache
        remembers 16,384 requests; further ones are refused at their writers.
        """

    def close(self, timeout: float = 5.0) -> None:
        """After it no peer touches the memory. Further calls do nothing."""

class KvMove:
    """The progress of a transfer."""

    def progress(self) -> tuple: ...

class KvRemote:
    """The KV cache of a peer."""

    @property
    def geometry(self) -> KvGeometry: ...

def kv_connect(peer: Peer, cache: KvCache, name: str, timeout: float | None) -> KvRemote: ...

class KvBroadcast:
    """The owner's side of a broadcast: slime.kv.Broadcast."""

    def __init__(self, agent: PeerAgent, parts: list, name: str, fan_out: object, chunk_bytes: object, patience: float) -> None: ...

    def begin_update(self) -> None:
        """Ends the version that is offered: after it the memory may change."""

    def publish(self) -> int:
        """Offers the memory as the next version, and returns its number."""

    def close(self, timeout: float = 2.0) -> None:
        """After it no peer touches the memory. Further calls do nothing."""

class KvReplica:
    """A reader's side of a broadcast: slime.kv.Replica."""

    def __init__(self, agent: PeerAgent, parts: list, name: str) -> None: ...

    @property
    def version(self) -> int:
        """The version of the last fetch if that has succeeded; else 0."""

    @property
    def children(self) -> int:
        """The number of readers that read from this memory now."""

    def retire(self, timeout: float = 2.0) -> None:
        """
        Passes on nothing any more, until the next fetch: after it the memory may change. Readers that
        read from here go on elsewhere; those that do not within `timeout` seconds are cut off.
        """

    def close(self, timeout: float = 2.0) -> None:
        """After it no peer touches the memory. Further calls do nothing."""

class KvShards:
    """The shards of this process: slime.kv.Shards."""

    def __init__(self, agent: PeerAgent, shards: list, name: str) -> None: ...

    def close(self, timeout: float = 2.0) -> None:
        """After it no peer reads the memory. Further calls do nothing."""

class KvGather:
    """Tensors and the owners of their shards: slime.kv.Gather."""

    def __init__(self, agent: PeerAgent, owners: list, tensors: list, name: str, timeout: float | None) -> None: ...

    def close(self, timeout: float = 2.0) -> None:
        """After it no byte lands in the memory. Further calls do nothing."""

def devices() -> list:
    """Lists the RDMA adapters of this machine. See slime.devices()."""
