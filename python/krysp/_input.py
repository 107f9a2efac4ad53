"""Converts the arguments of users to the types that the compiled module accepts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from . import _gpu
from ._types import FloatArray, IndexArray

SINGLE = np.dtype(np.float32)
DOUBLE = np.dtype(np.float64)
# formats whose array `data` has one value for each entry, in an order that krysp stores
ORDERED = ("csr", "csc", "coo")


def real(dtype: Any, what: str) -> np.dtype[Any]:
    """The element type of computations with data of this dtype: single precision only for `float32`."""
    dtype = DOUBLE if dtype is None else np.dtype(dtype)
    if dtype.kind == "c":
        raise ValueError(
            f"{what} is complex, but krysp supports real numbers only: pass `.real` if the imaginary parts are zero, otherwise "
            "split the system into real and imaginary parts"
        )
    if dtype.kind not in "fiub":
        raise TypeError(f"{what} must have a numeric dtype; got {dtype}")
    return SINGLE if dtype == SINGLE else DOUBLE


def sparse(matrix: Any) -> Any:
    """Returns the matrix if it is sparse and two-dimensional; otherwise raises an error that says what to write instead."""
    if not issparse(matrix):
        matrix = _gpu.matrix_of(matrix)
    if not issparse(matrix):
        if isinstance(matrix, (np.ndarray, list, tuple)):
            raise TypeError(
                "the matrix must be sparse; got a dense one: `scipy.sparse.csr_array(A)` keeps only its nonzero entries, "
                "`scipy.sparse.linalg.aslinearoperator(A)` multiplies with the dense matrix"
            )
        raise TypeError(f"the matrix must be a sparse matrix or array of SciPy; got {type(matrix).__name__}")
    if matrix.ndim != 2:
        raise ValueError(f"the matrix must be two-dimensional; got {matrix.ndim} dimensions")
    return matrix


def values(data: Any, dtype: np.dtype[Any], what: str = "the array of values") -> FloatArray:
    """The values as a contiguous one-dimensional array of this dtype. Raises an error for complex ones."""
    data = np.asarray(data)
    real(data.dtype, what)
    return np.ascontiguousarray(data, dtype=dtype).reshape(-1)


def rows(matrix: Any, dtype: np.dtype[Any]) -> tuple[int, IndexArray, IndexArray, FloatArray]:
    """Number of columns, offsets, indices and values in CSR. Arrays of the right type are not copied."""
    matrix = sparse(matrix)
    if matrix.format != "csr":
        matrix = matrix.tocsr()
    return (
        matrix.shape[1],
        short(matrix.indptr, "indptr"),
        short(matrix.indices, "indices"),
        values(matrix.data[: matrix.indptr[-1]] if len(matrix.data) != matrix.indptr[-1] else matrix.data, dtype),
    )


def short(indices: NDArray[Any], what: str) -> IndexArray:
    """Indices as unsigned 32-bit integers; 32-bit ones are not copied."""
    if indices.dtype == np.int32:
        return np.ascontiguousarray(indices).view(np.uint32)
    if len(indices) and not 0 <= indices.min() <= indices.max() < 2**32:
        raise ValueError(f"{what} has an entry that is negative or needs more than 32 bits")
    return np.ascontiguousarray(indices, dtype=np.uint32)


def arrays(matrix: Any) -> tuple[str, tuple[int, int], NDArray[Any], NDArray[Any], Any]:
    """The format (CSR, CSC or COO), the shape, the two index arrays and the values, in the order of the user's arrays."""
    matrix = sparse(matrix)
    if matrix.format == "coo":
        first, second = matrix.row, matrix.col
    else:
        if matrix.format not in ("csr", "csc"):
            matrix = matrix.tocsr()
        first, second = matrix.indptr, matrix.indices
    index = np.int32 if first.dtype == np.int32 and second.dtype == np.int32 else np.int64
    first, second = (np.ascontiguousarray(array, dtype=index) for array in (first, second))
    return matrix.format, matrix.shape, first, second, matrix.data


def format_of(matrix: Any) -> str:
    """The name of the format of a matrix; "csr" for tensors, whose values are in that order."""
    return str(getattr(matrix, "format", "csr"))


def check_shape(shape: tuple[int, ...], n: int, what: str) -> None:
    """Raises an error unless this is the shape of a vector of `n` entries."""
    if shape in ((n,), (n, 1)):
        return
    if len(shape) == 1:
        raise ValueError(f"{what} must have {n} entries, to match the matrix; got {shape[0]}")
    # a right-hand side may have several columns, but `columns` checks these: here the dimensions are wrong
    raise ValueError(f"{what} must be one-dimensional or have shape ({n}, {'k' if what == 'b' else 1}); got {shape}")


def has_columns(array: Any) -> bool:
    """Returns whether an array is a matrix of several right-hand sides; a matrix with a single column counts as a vector."""
    return bool(array.ndim == 2 and array.shape[1] != 1)


def columns(given: Any, n: int, dtype: np.dtype[Any], what: str) -> FloatArray:
    """The columns of a matrix of `n` rows, one after the other in one vector of the element type."""
    if given.shape[0] != n or given.shape[1] == 0:
        raise ValueError(f"{what} must have shape ({n},) or ({n}, k) with k of 1 or more; got {given.shape}")
    real(given.dtype, what)
    return np.asfortranarray(given, dtype=dtype).reshape(-1, order="F")


def refresh(core: Any, new: Any, dtype: np.dtype[Any], given: str) -> None:
    """Passes new values to a matrix or a plan whose matrix was given in the format `given`. `new` is a matrix, or an array in the
    order of the `data` of the matrix that was given.
    """
    new = new if issparse(new) else _gpu.matrix_of(new)
    if given not in ORDERED and not issparse(new):
        raise TypeError(
            f"the matrix was given in the format {given.upper()}, which is converted and loses the order of its `data`: pass the "
            "matrix, `refresh(A)`"
        )
    if issparse(new):
        layout, shape, first, second, data = arrays(new)
        core.refresh_from(layout, shape, first, second, values(data, dtype, "the matrix"))
    else:
        core.refresh(values(new, dtype))


def vector(given: Any, n: int, dtype: np.dtype[Any], what: str) -> FloatArray:
    """The argument as a contiguous vector of `n` entries of this dtype; an array with one column is accepted."""
    given = np.asarray(given)
    check_shape(given.shape, n, what)
    return values(given, dtype, what)
