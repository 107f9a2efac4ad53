"""Vectors and matrices that CuPy or PyTorch have on a GPU."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import scipy.sparse

from . import _krysp
from ._krysp import Report


def is_on_gpu(array: Any) -> bool:
    """Whether this is an array in the memory of a GPU."""
    return type(array) is not np.ndarray and hasattr(array, "__cuda_array_interface__")


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
    memory, and what the caller has queued on its stream is waited for.
    """
    library = importlib.import_module(type(b).__module__.partition(".")[0])
    kind = getattr(library, dtype.name)
    torch = library.__name__ == "torch"

    def flat(array: Any, what: str) -> Any:
        if tuple(array.shape) not in ((n,), (n, 1)):
            raise ValueError(f"{what} has shape {tuple(array.shape)}, the matrix has {n} rows")
        array = array.detach().to(kind) if torch else array.astype(kind, copy=False)
        array = array.reshape(-1)
        return array.contiguous() if torch else library.ascontiguousarray(array)

    stream = _krysp.stream(matrix)
    rhs = flat(b, "b")
    x = library.empty_like(rhs) if x0 is None else flat(x0, "x0")
    if x0 is not None:
        x = x.clone() if torch else x.copy()
    # what the caller has queued comes before what the matrix's stream is given from now on
    for array in (rhs, x):
        array.__dlpack__(stream=stream)
    from_b, to_x = (array.__cuda_array_interface__["data"][0] for array in (rhs, x))
    info, report = _krysp.solve_on_device(
        method, matrix, from_b, to_x, x0 is not None, preconditioner, rtol, atol, most, restart
    )
    return x, info, report
