"""Arrays in registered memory."""

from __future__ import annotations

import math
from typing import Any

from slime import _slime
from slime._errors import InvalidArgument


def empty(agent: _slime.PeerAgent, shape: Any, dtype: Any, rights: _slime.Rights, pages: _slime.Pages) -> Any:
    """Returns a NumPy array in new registered memory. The array and its views keep the memory alive."""
    try:
        import numpy  # optional: only arrays need it
    except ModuleNotFoundError as error:
        if error.name != "numpy":  # a broken installation of it
            raise
        raise ModuleNotFoundError("agent.empty() needs NumPy: pip install 'slime-rdma[numpy]'", name="numpy") from None

    item = numpy.dtype(dtype)
    if item.hasobject:
        raise InvalidArgument(f"arrays of {item} hold Python objects, not bytes")
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    region = agent.allocate(max(1, item.itemsize * math.prod(extents)), rights, pages)
    return numpy.ndarray(extents, item, buffer=memoryview(region))  # type: ignore[arg-type]


def region_of(array: Any) -> _slime.MemoryRegion:
    """Returns the region of an array from `agent.empty`, or of a view of such an array."""
    base = array
    while base is not None:
        if isinstance(base, _slime.MemoryRegion):
            return base
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    raise InvalidArgument(
        f"{type(array).__name__} is neither a MemoryRegion nor an array in one: register its memory first, "
        "or make it with agent.empty()"
    )


def locate(array: Any) -> tuple[_slime.MemoryRegion, int, int]:
    """Returns the region that contains the array, the offset of the array's first byte in the
    region, and the array's number of bytes."""
    region = region_of(array)
    if isinstance(array, memoryview):
        raise InvalidArgument("a memoryview does not tell where it begins: pass its region and an offset")
    if not array.flags.forc:
        raise InvalidArgument("the array is not contiguous: each Copy names one run of bytes")
    return region, array.__array_interface__["data"][0] - region.address, array.nbytes
