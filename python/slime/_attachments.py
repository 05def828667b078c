"""Attachments of calls: arrays, tensors, regions and long bytes, which are sent directly from their
memory, without a copy, next to the msgpack body. Pickle is never used."""

from __future__ import annotations

import math
import os
import re
import sys
import threading
from typing import Any, Callable, Iterable, List, Optional, Set, Tuple

import msgpack

from slime import _codec, _completion, _slime
from slime._errors import Internal, InvalidArgument

# bytes, bytearray and memoryview of at least this length become attachments, in arguments and
# results.
BYTES = 64 * 1024
_BYTES = frozenset((bytes, bytearray, memoryview))

# Type of the msgpack extension value that refers to an attachment.
_EXTENSION = 1

# Matches NumPy's dtype strings of numbers, times and fixed-length texts; never of Python objects.
_DTYPE = re.compile(r"[<>|](?:[biufc][0-9]{1,2}|[SU][0-9]{1,9}|[mM]8(?:\[[0-9]{0,6}[a-zA-Z]{1,2}\])?)", re.ASCII)
_KINDS = "biufcmMSU"
# Matches the dtype string of bytes: a bytes object is sent as one NumPy item ("S") of its length.
_ONE_BYTES = re.compile(r"\|S([0-9]{1,20})", re.ASCII)
_TENSOR = re.compile(r"torch\.(bool|(?:uint|int|float|bfloat|complex)[0-9a-z_]{1,20})", re.ASCII)
_TENSOR_AS_ARRAY = {
    **{f"int{8 * size}": f"<i{size}" for size in (2, 4, 8)},
    **{f"uint{8 * size}": f"<u{size}" for size in (2, 4, 8)},
    "int8": "|i1",
    "uint8": "|u1",
    **{f"float{8 * size}": f"<f{size}" for size in (2, 4, 8)},
    "complex64": "<c8",
    "complex128": "<c16",
    "bool": "|b1",
}


class _Beside(Exception):
    """Raised while packing a value that has to be sent as an attachment, or contains such a
    value."""


# ------------------------------------------------------------------------------------------ sending


def _scalar(value: Any) -> Any:
    """Called by msgpack for unknown types. Converts NumPy scalars; raises _Beside for objects that
    become attachments."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        return value.item()
    if _has_memory(value):
        raise _Beside
    _codec.check_int(value)
    raise TypeError(
        f"{type(value).__name__} has no msgpack form: send numbers, str, bytes, None, lists, tuples, dicts, "
        "NumPy arrays, torch tensors and memory regions"
    )


def _has_memory(value: Any) -> bool:
    if isinstance(value, (_slime.MemoryRegion, _slime.Attachment)):
        return True
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    return (numpy is not None and isinstance(value, numpy.ndarray)) or (
        torch is not None and isinstance(value, torch.Tensor)
    )


# Packers that are not in use now. Making a packer takes three times as long as packing a short
# value. A packer that failed is not put back. pop() and append() are atomic.
_packers: List[msgpack.Packer] = []


def pack(value: Any) -> Tuple[bytes, Optional[_slime.AttachedBody]]:
    """Packs the arguments (a tuple) or the result. Returns body and attachments. Raises
    InvalidArgument if a value cannot be packed."""
    if type(value) is tuple:
        for each in value:
            if type(each) in _BYTES and len(each) >= BYTES:
                return _pack_beside(value)
    elif type(value) in _BYTES and len(value) >= BYTES:
        return _pack_beside(value)
    try:
        packer = _packers.pop()
    except IndexError:
        packer = msgpack.Packer(use_bin_type=True, default=_scalar)
    try:
        body = packer.pack(value)
    except _Beside:
        return _pack_beside(value)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidArgument(f"cannot be sent: {error}") from error
    if len(body) < BYTES:  # a larger buffer is not kept
        _packers.append(packer)
    return body, None


def _pack_beside(value: Any) -> Tuple[bytes, _slime.AttachedBody]:
    beside = _slime.AttachedBody()

    def extend(each: Any) -> Any:
        try:
            return _scalar(each)
        except _Beside:
            return msgpack.ExtType(_EXTENSION, _add(beside, each))

    def top(each: Any) -> Any:
        if type(each) in _BYTES and len(each) >= BYTES:
            return msgpack.ExtType(_EXTENSION, _add_bytes(beside, each))
        return each

    value = [top(each) for each in value] if type(value) is tuple else top(value)
    try:
        body = msgpack.packb(value, use_bin_type=True, default=extend)
    except InvalidArgument as error:
        raise InvalidArgument(f"cannot be sent: {error.text}") from error
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidArgument(f"cannot be sent: {error}") from error
    return body, beside


def _add(beside: _slime.AttachedBody, value: Any) -> bytes:
    if isinstance(value, _slime.MemoryRegion):
        return beside.add(value, _lent_as_it_is(value), None, ())
    if isinstance(value, _slime.Attachment):
        return beside.add(value, value, value.dtype, value.shape)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _add_tensor(beside, value, torch)
    return _add_array(beside, value)


def _add_bytes(beside: _slime.AttachedBody, value: Any) -> bytes:
    if isinstance(value, memoryview) and not value.c_contiguous:
        value = value.tobytes()
    length = value.nbytes if isinstance(value, memoryview) else len(value)
    return beside.add(value, _lent_as_it_is(value), f"|S{length}", ())


def _add_array(beside: _slime.AttachedBody, array: Any) -> bytes:
    import numpy

    if isinstance(array, numpy.ma.MaskedArray):
        raise InvalidArgument("masked arrays do not travel: send their data and mask")
    dtype = array.dtype
    if dtype.kind not in _KINDS or _DTYPE.fullmatch(dtype.str) is None:
        raise InvalidArgument(
            f"arrays of {dtype} do not travel: only numbers, bool, times, and texts of one length do"
            + (", one array for each field" if dtype.names else "")
        )
    # Copies an array that is not in C order, since attachments are sent from contiguous memory.
    flat = array if array.flags.c_contiguous else numpy.array(array, order="C", copy=True, subok=False)
    # Times do not have the buffer protocol.
    memory = flat.view(f"i{dtype.itemsize}") if dtype.kind in "mM" else flat
    if flat.nbytes == 0:
        memory = b""
    return beside.add(memory, _lent_as_it_is(flat), dtype.str, array.shape)


def _add_tensor(beside: _slime.AttachedBody, tensor: Any, torch: Any) -> bytes:
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        raise InvalidArgument(f"a tensor on {tensor.device}, {tensor.layout}: only dense tensors of the CPU travel")
    name = str(tensor.dtype)
    if _TENSOR.fullmatch(name) is None or sys.byteorder != "little":
        raise InvalidArgument(f"tensors of {name} do not travel")
    received = _received.get(tensor)
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if tensor.numel() == 0:
        return beside.add(b"", None, name, tuple(tensor.shape))
    return beside.add(tensor.reshape(-1).view(torch.uint8), received, name, tuple(tensor.shape))


def _owner(value: Any) -> Any:
    """Returns the MemoryRegion or Attachment that contains the value's memory, or None."""
    while value is not None:
        if isinstance(value, (_slime.MemoryRegion, _slime.Attachment)):
            return value
        value = value.obj if isinstance(value, memoryview) else getattr(value, "base", None)
    return None


def _lent_as_it_is(value: Any) -> Any:
    """Returns the MemoryRegion or Attachment that owns the value's memory, if the memory can be
    sent without a registration for this call; otherwise None."""
    owner = _owner(value)
    if isinstance(owner, _slime.MemoryRegion):
        readable = _slime.Rights.REMOTE_READ
        return owner if not owner.closed and (owner.rights & readable) == readable else None
    return owner


def starter(
    raw: Callable, attached: Callable, names: tuple, arguments: tuple, timeout: Optional[float], into: Any = None
) -> Callable[[Optional[list], bool], _slime.Future]:
    """Returns the start() function for begin_call(). start() calls `attached` if the request has
    attachments or the reply's attachments have a destination, otherwise `raw`."""
    body, beside = pack(arguments)
    if into is not None:
        beside = into_of(into, beside)
    if beside is None:
        return lambda entries, timed: raw(*names, body, timeout, unpack_reply, entries, timed)
    return lambda entries, timed: attached(*names, body, beside, timeout, unpack_reply, entries, timed)


def ranges_of(ranges: Iterable[Any]) -> _slime.AttachedBody:
    """Returns the memory of `ranges`, to be sent without a copy."""
    out = _slime.AttachedBody()
    for each in ranges:
        out.add(_memory_of(each, "a range to send is"), _lent_as_it_is(each), None, ())
    return out


def _memory_of(value: Any, what: str) -> Any:
    """Returns an object with the buffer protocol for the contiguous memory of an array, a tensor or
    another object with that protocol. `what`: the beginning of an error's text."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.device.type != "cpu" or not value.is_contiguous() or value.requires_grad:
            raise InvalidArgument(f"{what} a tensor that is not contiguous memory of the CPU, or requires gradients")
        return value.reshape(-1).view(torch.uint8)
    if hasattr(value, "dtype") and hasattr(value, "flags"):
        if value.dtype.hasobject:
            raise InvalidArgument(f"{what} an array of {value.dtype}")
        if not value.flags.c_contiguous:
            raise InvalidArgument(f"{what} an array that is not contiguous")
        return value.view(f"i{value.dtype.itemsize}") if value.dtype.kind in "mM" else value
    return value


def into_of(into: Any, beside: Optional[_slime.AttachedBody]) -> _slime.AttachedBody:
    """Returns `beside`, or a new AttachedBody if it is None, with the destinations `into`: the
    memory that the attachments of the call's reply are written to."""
    out = _slime.AttachedBody() if beside is None else beside
    for each in into if isinstance(into, (list, tuple)) else [into]:
        memory = _memory_of(each, "`into` names")
        region = _owner(each)
        known = isinstance(region, _slime.MemoryRegion) and not region.closed
        out.add_into(memory, region if known else None)
    _Releaser.start()
    return out


# ---------------------------------------------------------------------------------------- receiving


class _Received:
    """Maps each received tensor to its attachment, because a tensor has no reference to the
    attachment."""

    def note(self, tensor: Any, attachment: _slime.Attachment) -> Any:
        tensor._slime_attachment = attachment
        return tensor

    def get(self, tensor: Any) -> Optional[_slime.Attachment]:
        return getattr(tensor, "_slime_attachment", None)


_received = _Received()


def _found(code: int, data: bytes) -> Any:
    if code == _EXTENSION:
        raise _Beside
    return msgpack.ExtType(code, data)


def unpack(payload: Any) -> Any:
    """Decodes one msgpack value. Raises InvalidArgument for bytes that are not one msgpack value,
    and for references to missing attachments. The payload goes on keeping the attachments, as do
    the views in the value: see drop_attachments()."""
    if isinstance(payload, _slime.Payload):
        value = _slime.decode_value(payload)
        if value is not NotImplemented:
            return value
    try:
        return _codec.unpack(payload, _found)
    except _Beside:
        pass
    if not isinstance(payload, _slime.Payload):
        raise InvalidArgument("not a msgpack value: an attachment, where none came along")
    taken: Set[bytes] = set()

    def value_of(code: int, data: bytes) -> Any:
        if code != _EXTENSION:
            return msgpack.ExtType(code, data)
        # Takes each attachment only once: bytes are copied, so repeated references to one
        # attachment could multiply the memory that they take.
        if data[:4] in taken:
            raise InvalidArgument("not a msgpack value: an attachment that stands in two places")
        taken.add(data[:4])
        return _value(payload.attachment(data))

    return _codec.unpack(payload, value_of)


def unpack_reply(payload: Any) -> Any:
    """Decodes the value of a reply. Raises Internal, with maybe_executed set, if the peer's bytes
    are not a msgpack value."""
    try:
        return unpack(payload)
    except InvalidArgument as error:
        raise Internal(f"bad reply: {error.text}", maybe_executed=True) from error


def _value(attachment: _slime.Attachment) -> Any:
    dtype = attachment.dtype
    if dtype is None:
        return attachment
    one = _ONE_BYTES.fullmatch(dtype)
    if one is not None and attachment.shape == () and int(one.group(1)) == attachment.nbytes:
        with attachment:
            return bytes(attachment)
    tensor = _TENSOR.fullmatch(dtype)
    if tensor is not None:
        return _tensor(attachment, tensor.group(1))
    return _array(attachment, dtype)


def _tensor(attachment: _slime.Attachment, name: str) -> Any:
    try:
        # takes about a second if the process has torch installed but not imported yet
        import torch
    except ImportError:
        as_array = _TENSOR_AS_ARRAY.get(name)
        return attachment if as_array is None else _array(attachment, as_array)
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        return attachment
    shape = attachment.shape
    _check_size(attachment, dtype.itemsize)
    if attachment.nbytes == 0:
        return torch.empty(shape, dtype=dtype)
    return _received.note(torch.frombuffer(attachment, dtype=dtype).reshape(shape), attachment)


def _array(attachment: _slime.Attachment, text: str) -> Any:
    if _DTYPE.fullmatch(text) is None:
        return attachment
    try:
        import numpy
    except ImportError:
        return attachment
    dtype = numpy.dtype(text)
    _check_size(attachment, dtype.itemsize)
    if attachment.nbytes == 0:
        return numpy.empty(attachment.shape, dtype)
    return numpy.ndarray(attachment.shape, dtype, buffer=memoryview(attachment))  # type: ignore[arg-type]


def _check_size(attachment: _slime.Attachment, item: int) -> None:
    shape = attachment.shape
    if item < 1 or item * math.prod(shape) != attachment.nbytes:
        raise InvalidArgument(f"an array of shape {shape} and {item} bytes each, in {attachment.nbytes} bytes")


def release(value: Any) -> None:
    """Frees the memory of a received attachment now, instead of when its last view is destroyed.
    Arrays, tensors and views of that memory must not be used afterwards: large ones read as zeros.
    Memory that the call named as a destination is not freed. Raises InvalidArgument for a value
    that was not received."""
    attachment = _received.get(value) or _owner(value)
    if not isinstance(attachment, _slime.Attachment):
        raise InvalidArgument(f"{type(value).__name__} is not, and does not lie in, memory that was received")
    if attachment is value:
        attachment.release()
    else:
        attachment.discard()


# -------------------------------------------------------------- memory that was lent and comes back


class _Releaser:
    """The thread that releases memory of sent attachments while the program makes no calls of
    Slime."""

    _lock = threading.Lock()
    _thread: Optional[threading.Thread] = None

    @classmethod
    def start(cls) -> None:
        if cls._thread is not None:
            return
        with cls._lock:
            if cls._thread is None:
                cls._thread = threading.Thread(target=cls._run, name="slime-release", daemon=True)
                cls._thread.start()

    @staticmethod
    def _run() -> None:
        while _slime.wait_released():
            _slime.drain_released()

    @classmethod
    def close(cls, deadline: float) -> None:
        """Ends the thread. Called when the process ends, after all agents are closed."""
        with cls._lock:
            thread = cls._thread
        if thread is not None:
            _slime.close_released()
            _completion.join_until(thread, deadline)
        _slime.drain_released()

    @classmethod
    def _after_fork(cls) -> None:
        cls._lock = threading.Lock()
        cls._thread = None


start_releaser = _Releaser.start
close = _Releaser.close
os.register_at_fork(after_in_child=_Releaser._after_fork)
