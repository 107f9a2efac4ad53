"""Vectors and matrices that CuPy or PyTorch have on a GPU."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np
import scipy.sparse

from . import _krysp
from ._krysp import Report


def is_on_gpu(array: Any) -> bool:
    """Whether this is an array in the memory of a GPU."""
    if type(array) is np.ndarray:
        return False
    # PyTorch says it of each tensor; the class is asked because an interface takes longer to make than to look for
    of_torch = getattr(array, "is_cuda", None)
    return hasattr(type(array), "__cuda_array_interface__") if of_torch is None else bool(of_torch)


def ordinal(array: Any) -> int:
    """The number of the GPU that has an array."""
    device = array.device
    number = getattr(device, "index", None)
    return int(number if number is not None else getattr(device, "id", 0))


def to_host(array: Any) -> Any:
    """An array of NumPy; those of NumPy as they are."""
    if type(array) is np.ndarray:
        return array
    if type(array).__module__.startswith("torch"):
        return array.detach().cpu().numpy()
    return array.get() if hasattr(array, "get") and is_on_gpu(array) else np.asarray(array)


def like(array: Any, host: Any) -> Any:
    """What is in host memory as an array of the kind and on the device of another."""
    library = importlib.import_module(type(array).__module__.partition(".")[0])
    if library.__name__ == "torch":
        return library.from_numpy(host).to(array.device)
    return library.asarray(host)


def matrix_of(matrix: Any) -> Any:
    """A sparse matrix of CuPy or PyTorch as one of SciPy; others as they are."""
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


# addresses that the compiled part takes are multiples of this; those of new arrays are
ALIGNED = 256


class Library:
    """CuPy or PyTorch, as far as a solve needs it."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._torch = module.__name__ == "torch"

    def vector(self, array: Any, n: int, dtype: np.dtype[Any], what: str) -> Any:
        """The array as a vector of `n` entries of an element type, side by side; itself if it is one."""
        if tuple(array.shape) not in ((n,), (n, 1)):
            raise ValueError(f"{what} has shape {tuple(array.shape)}, the matrix has {n} rows")
        if self._torch:
            return array.detach().to(getattr(self._module, dtype.name)).reshape(-1).contiguous()
        if array.dtype != dtype or array.ndim != 1 or not array.flags.c_contiguous:
            array = self._module.ascontiguousarray(array.astype(dtype, copy=False).reshape(-1))
        return array

    def copy(self, array: Any) -> Any:
        return array.clone() if self._torch else array.copy()

    def empty_like(self, vector: Any) -> Any:
        return self._module.empty_like(vector) if self._torch else self._module.ndarray(vector.shape, vector.dtype)

    def address(self, array: Any) -> int:
        return int(array.data_ptr() if self._torch else array.data.ptr)


@functools.cache
def library_of(module: str) -> Library:
    """The library that has this module."""
    return Library(importlib.import_module(module.partition(".")[0]))


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
    """Solves with a matrix and a right-hand side that are on one GPU. `x` is of the kind of `b`; nothing passes through host
    memory, and what the caller has queued on his stream is waited for.
    """
    library = library_of(type(b).__module__)
    rhs = library.vector(b, n, dtype, "b")
    if library.address(rhs) % ALIGNED != 0:
        rhs = library.copy(rhs)
    x = library.empty_like(rhs) if x0 is None else library.copy(library.vector(x0, n, dtype, "x0"))
    # what the caller has queued, x among it, comes before what the matrix's stream is given from now on
    rhs.__dlpack__(stream=_krysp.stream(matrix))
    info, report = _krysp.solve_on_device(
        method,
        matrix,
        library.address(rhs),
        library.address(x),
        x0 is not None,
        preconditioner,
        rtol,
        atol,
        most,
        restart,
    )
    return x, info, report
