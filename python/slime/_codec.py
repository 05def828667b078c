"""Encodes arguments as a msgpack array and results as a msgpack value. Pickle is never used."""

from __future__ import annotations

from typing import Any, Callable

import msgpack

from slime._errors import InvalidArgument

# Exceptions that msgpack raises for bytes that it cannot decode or cannot convert to a Python
# value.
_DECODE_ERRORS = (
    ValueError,
    TypeError,
    OverflowError,
    MemoryError,
    RuntimeError,
    msgpack.exceptions.UnpackException,
)


def check_int(value: Any) -> None:
    """Raises TypeError if `value` is an int: msgpack calls this function only for an int that is
    too large."""
    if isinstance(value, int):
        bits = value.bit_length()
        text = str(value) if bits <= 256 else f"an int of {bits} bits"
        raise TypeError(f"{text} does not fit msgpack's 64-bit integers; send it as str or bytes")


def _extend(value: Any) -> Any:
    """Converts values of types that msgpack does not know, for msgpack. Converts NumPy scalars;
    raises TypeError for other types."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    check_int(value)
    kind = type(value).__name__
    if hasattr(value, "tobytes") or hasattr(value, "__dlpack__"):
        raise TypeError(
            f"{kind} travels beside the arguments or the result of a call: here send its bytes, and dtype and shape if "
            "needed"
        )
    raise TypeError(f"{kind} has no msgpack form: send numbers, str, bytes, None, lists, tuples and dicts")


def pack(value: Any) -> bytes:
    """Encodes a value. Raises InvalidArgument if msgpack cannot express it."""
    try:
        return msgpack.packb(value, use_bin_type=True, default=_extend)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidArgument(f"cannot be sent: {error}") from error


def unpack(payload: Any, extend: Callable = msgpack.ExtType) -> Any:
    """Decodes one msgpack value. Raises InvalidArgument for bytes that are not one msgpack value.
    `extend` converts extension values."""
    try:
        return msgpack.unpackb(payload, raw=False, strict_map_key=False, ext_hook=extend)
    except InvalidArgument:
        raise
    except _DECODE_ERRORS as error:
        raise InvalidArgument(f"not a msgpack value: {type(error).__name__}: {error}") from error
