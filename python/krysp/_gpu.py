"""Vectors and matrices of CuPy and PyTorch on a GPU."""

from __future__ import annotations

import functools
import importlib
import threading
from typing import Any

import numpy as np
import scipy.sparse

from . import _krysp
from ._krysp import Report


def is_on_gpu(array: Any) -> bool:
    """Returns whether this is an array in the memory of a GPU."""
    if type(array) is np.ndarray:
        return False
    # test the class: accessing `__cuda_array_interface__` of an array creates the interface, which takes longer; PyTorch has a
    # flag
    of_torch = getattr(array, "is_cuda", None)
    return hasattr(type(array), "__cuda_array_interface__") if of_torch is None else bool(of_torch)


def ordinal(array: Any) -> int:
    """The ordinal of the GPU of an array."""
    device = array.device
    number = getattr(device, "index", None)
    return int(number if number is not None else getattr(device, "id", 0))


def to_host(array: Any) -> Any:
    """The array as a NumPy array; NumPy arrays are returned unchanged."""
    if type(array) is np.ndarray:
        return array
    if type(array).__module__.startswith("torch"):
        return array.detach().cpu().numpy()
    return array.get() if hasattr(array, "get") and is_on_gpu(array) else np.asarray(array)


def like(array: Any, host: Any) -> Any:
    """A NumPy array, converted to the library and the device of `array`."""
    library = importlib.import_module(type(array).__module__.partition(".")[0])
    if library.__name__ == "torch":
        return library.from_numpy(host).to(array.device)
    return library.asarray(host)


def matrix_of(matrix: Any) -> Any:
    """A sparse matrix of CuPy or PyTorch, converted to SciPy; other objects are returned unchanged."""
    library = type(matrix).__module__.partition(".")[0]
    if library == "cupyx":
        return matrix.get()
    if library == "torch" and str(matrix.layout) == "torch.sparse_csr":
        parts = (matrix.values(), matrix.col_indices(), matrix.crow_indices())
        return scipy.sparse.csr_array(tuple(to_host(part) for part in parts), shape=tuple(matrix.shape))
    if library == "torch" and str(matrix.layout) == "torch.sparse_coo":
        whole = matrix.coalesce()
        places = to_host(whole.indices())
        return scipy.sparse.coo_array((to_host(whole.values()), (places[0], places[1])), shape=tuple(matrix.shape))
    return matrix


# alignment in bytes that the compiled module requires; newly allocated arrays have it
ALIGNED = 256


class CuPy:
    """The functions of CuPy that a solve needs."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._current = cupy.cuda.get_current_stream
        self._runtime = cupy.cuda.runtime
        self._own = threading.local()

    def vector(self, array: Any, n: int, dtype: np.dtype[Any], what: str) -> Any:
        """The array as a contiguous vector of `n` entries of this dtype; not copied if it is one."""
        if array.shape != (n,) or array.dtype != dtype or not array.flags.c_contiguous:
            _check_shape(array, n, what)
            if array.dtype.kind == "c":
                raise ValueError(f"{what} is complex, but krysp supports real numbers only: pass `.real` if that is intended")
            if array.dtype.itemsize > dtype.itemsize:
                _check_range(array.reshape(-1), what)
            array = self._cupy.ascontiguousarray(array.astype(dtype, copy=False).reshape(-1))
        return array

    def copy(self, array: Any) -> Any:
        return array.copy()

    def empty_like(self, vector: Any) -> Any:
        return self._cupy.ndarray(vector.shape, vector.dtype)

    def address(self, array: Any) -> int:
        return int(array.data.ptr)

    def order(self, array: Any, stream: Any) -> None:
        """Makes the stream wait for the work that the caller has queued on the current stream of CuPy."""
        device = array.data.device_id
        if device != self._runtime.getDevice():
            array.__dlpack__(stream=stream)
            return
        # one event per thread, so that no other thread records it meanwhile; `__dlpack__` would create a new one each time
        events = self._own.__dict__
        event = events.get(device)
        if event is None:
            event = events[device] = self._cupy.cuda.Event(disable_timing=True)
        self._runtime.eventRecord(event.ptr, self._current().ptr)
        self._runtime.streamWaitEvent(stream, event.ptr)


class PyTorch:
    """The functions of PyTorch that a solve needs."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._types = {np.dtype(name): getattr(torch, name) for name in ("float32", "float64")}
        self._own = threading.local()
        self._stream = functools.cache(torch.cuda.ExternalStream)

    def vector(self, array: Any, n: int, dtype: np.dtype[Any], what: str) -> Any:
        """The array as a contiguous vector of `n` entries of this dtype, detached from the autograd graph."""
        if array.shape != (n,) or array.dtype is not self._types[dtype] or not array.is_contiguous():
            _check_shape(array, n, what)
            if array.element_size() > dtype.itemsize:
                _check_range(array.reshape(-1), what)
            array = array.to(self._types[dtype]).reshape(-1).contiguous()
        return array.detach()

    def copy(self, array: Any) -> Any:
        return array.clone()

    def empty_like(self, vector: Any) -> Any:
        return self._torch.empty_like(vector)

    def address(self, array: Any) -> int:
        return int(array.data_ptr())

    def order(self, array: Any, stream: Any) -> None:
        """Makes the stream wait for the work that the caller has queued on the current stream of PyTorch."""
        events = self._own.__dict__
        event = events.get(array.device)
        if event is None:
            event = events[array.device] = self._torch.cuda.Event()
        event.record(self._torch.cuda.current_stream(array.device))
        event.wait(self._stream(stream, array.device))


def _check_shape(array: Any, n: int, what: str) -> None:
    from . import _input  # not at the top: `_input` imports this module

    _input.check_shape(tuple(array.shape), n, what)


def _check_range(vector: Any, what: str) -> None:
    from . import _input  # not at the top: `_input` imports this module

    _input.check_range(vector, what, may_vanish=what == "x0")


@functools.cache
def library_of(module: str) -> CuPy | PyTorch:
    """The functions of the library that contains this module."""
    library = importlib.import_module(module.partition(".")[0])
    return PyTorch(library) if library.__name__ == "torch" else CuPy(library)


def solve(
    method: str,
    matrix: Any,
    n: int,
    dtype: np.dtype[Any],
    b: Any,
    x0: Any,
    preconditioner: Any,
    rtol: float,
    atol: float,
    most: int,
    restart: int,
) -> tuple[Any, int, Report]:
    """Solves with a matrix and a right-hand side on the same GPU, without a copy through host memory. `x` has the type of `b`.
    The solve waits for the work that the caller has queued on the current stream.
    """
    library = library_of(type(b).__module__)
    rhs = library.vector(b, n, dtype, "b")
    address = library.address(rhs)
    if address % ALIGNED != 0:
        rhs = library.copy(rhs)
        address = library.address(rhs)
    x = library.empty_like(rhs) if x0 is None else library.copy(library.vector(x0, n, dtype, "x0"))
    # after `x` was allocated: queued work of the caller may still use the memory that `x` was given
    library.order(rhs, _krysp.stream(matrix))
    info, report = _krysp.solve_on_device(
        method,
        matrix,
        address,
        library.address(x),
        x0 is not None,
        preconditioner,
        rtol,
        atol,
        most,
        restart,
    )
    return x, info, report
