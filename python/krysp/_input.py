"""Converts the arguments of users to the types that the compiled module accepts."""

from __future__ import annotations

import operator
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from . import _gpu
from ._types import FloatArray, IndexArray

SINGLE = np.dtype(np.float32)
DOUBLE = np.dtype(np.float64)
ACCEPTED_M = (
    "a preconditioner of krysp, such as `krysp.jacobi(A)`, a sparse matrix or array of SciPy, a LinearOperator of SciPy, or a function"
)
# the largest count that the compiled module accepts
LARGEST_COUNT = 2**63 - 1
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


def sparse(matrix: Any, what: str = "the matrix") -> Any:
    """Returns the matrix if it is sparse and two-dimensional; otherwise raises an error that calls it `what` and says what to write
    instead."""
    name = "M" if what == "M" else "A"
    if not issparse(matrix):
        matrix = _gpu.matrix_of(matrix)
    if not issparse(matrix):
        if isinstance(matrix, (np.ndarray, list, tuple)):
            raise TypeError(
                f"{what} must be sparse; got a dense matrix: `scipy.sparse.csr_array({name})` keeps only its nonzero entries, "
                f"`scipy.sparse.linalg.aslinearoperator({name})` multiplies with the dense matrix"
            )
        got = repr(matrix) if isinstance(matrix, str) else f"an object of type {type(matrix).__name__}"
        raise TypeError(f"{what} must be {ACCEPTED_M if name == 'M' else 'a sparse matrix or array of SciPy'}; got {got}")
    if matrix.ndim != 2:
        raise ValueError(f"{what} must be two-dimensional; got {matrix.ndim} dimensions")
    return matrix


def values(data: Any, dtype: np.dtype[Any], what: str = "the array of values", may_vanish: bool = False) -> FloatArray:
    """The values as a contiguous one-dimensional array of this dtype. Raises an error for complex ones, and if single precision
    cannot represent them; with `may_vanish`, they may all be rounded to zero."""
    data = np.asarray(data)
    real(data.dtype, what)
    if dtype == SINGLE and data.dtype == DOUBLE:
        check_range(data, what, may_vanish)
    return np.ascontiguousarray(data, dtype=dtype).reshape(-1)


def check_range(data: Any, what: str, may_vanish: bool = False) -> None:
    """Raises an error if finite numbers in double precision would overflow in single precision or, unless `may_vanish`, would all be
    rounded to zero or to subnormal numbers. `data` is a vector of NumPy, CuPy or PyTorch."""
    largest = float(abs(data).max()) if len(data) else 0.0
    least, most = float(np.finfo(SINGLE).tiny), float(np.finfo(SINGLE).max)
    if largest == 0.0 or not np.isfinite(largest) or (may_vanish or largest >= least) and largest <= most:
        return
    raise ValueError(
        f"the largest magnitude of {what} is {largest:.1e}, which the single precision of the matrix cannot represent (it has "
        f"{least:.1e} to {most:.1e}): scale {what}, or give the matrix in double precision"
    )


def count(given: Any, what: str, least: int = 0) -> int:
    """An integer argument; error messages call it `what`."""
    try:
        number = operator.index(given)
    except TypeError:
        raise TypeError(f"{what} must be an integer; got {given!r}") from None
    if number < least:
        raise ValueError(f"{what} must be at least {least}; got {number}")
    return min(number, LARGEST_COUNT)


def number(given: Any, what: str) -> float:
    """An argument that is a real number; error messages call it `what`."""
    if isinstance(given, str) or not hasattr(given, "__float__"):
        raise TypeError(f"{what} must be a number; got {given!r}")
    return float(given)


def not_negative(given: Any, what: str) -> float:
    """An argument that is a number of at least zero, or infinity; error messages call it `what`."""
    if not (isinstance(given, Real) and float(given) >= 0.0):
        raise ValueError(f"{what} must be a number that is not negative; got {given!r}")
    return float(given)


def dense(given: Any, what: str) -> Any:
    """The argument as an array of NumPy. Raises an error if it is sparse."""
    if issparse(given):
        raise TypeError(f"{what} must be dense; got a sparse matrix or array: pass `{what}.toarray()`")
    return np.asarray(given)


def rows(matrix: Any, dtype: np.dtype[Any], what: str = "the matrix") -> tuple[int, IndexArray, IndexArray, FloatArray]:
    """Number of columns, offsets, indices and values in CSR. The compiled module copies the indices, and borrows the values."""
    matrix = sparse(matrix, what)
    if matrix.format != "csr":
        matrix = matrix.tocsr()
    indices, data = matrix.indices, matrix.data
    # SciPy allows arrays that are longer than the last offset
    entries = matrix.indptr[-1]
    if len(data) != entries and 0 <= entries <= min(len(indices), len(data)):
        indices, data = indices[:entries], data[:entries]
    return matrix.shape[1], *same_type(matrix.indptr, indices), values(data, dtype, what)


def same_type(first: NDArray[Any], second: NDArray[Any]) -> tuple[Any, Any]:
    """Two index arrays as contiguous ones of 32 bits if both have 32, otherwise of 64."""
    index = np.int32 if first.dtype == np.int32 and second.dtype == np.int32 else np.int64
    return np.ascontiguousarray(first, dtype=index), np.ascontiguousarray(second, dtype=index)


def arrays(matrix: Any) -> tuple[str, tuple[int, int], NDArray[Any], NDArray[Any], Any]:
    """The format (CSR, CSC or COO), the shape, the two index arrays and the values, in the order of the user's arrays."""
    matrix = sparse(matrix)
    if matrix.format == "coo":
        first, second = matrix.row, matrix.col
    else:
        if matrix.format not in ("csr", "csc"):
            matrix = matrix.tocsr()
        first, second = matrix.indptr, matrix.indices
    return matrix.format, matrix.shape, *same_type(first, second), matrix.data


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
    if dtype == SINGLE and given.dtype == DOUBLE:
        for column in given.T:
            check_range(column, f"a column of {what}")
    return np.asfortranarray(given, dtype=dtype).reshape(-1, order="F")


def refresh(core: Any, new: Any, shape: tuple[int, int], dtype: np.dtype[Any], given: str) -> None:
    """Passes new values to a matrix or a plan whose matrix has this shape and was given in the format `given`. `new` is a matrix, or
    an array in the order of the `data` of the matrix that was given.
    """
    new = new if issparse(new) else _gpu.matrix_of(new)
    if given not in ORDERED and not issparse(new):
        raise TypeError(
            f"the matrix was given in the format {given.upper()}, which is converted and loses the order of its `data`: pass the "
            "matrix, `refresh(A)`"
        )
    if issparse(new):
        layout, new_shape, first, second, data = arrays(new)
        if new_shape != shape:
            raise ValueError(
                f"the matrix must be {shape[0]} x {shape[1]}, as the matrix that it replaces; got {new_shape[0]} x {new_shape[1]}"
            )
        core.refresh_from(layout, shape, first, second, values(data, dtype, "the matrix"))
    else:
        core.refresh(values(new, dtype))


def vector(given: Any, n: int, dtype: np.dtype[Any], what: str, may_vanish: bool = False) -> FloatArray:
    """The argument as a contiguous vector of `n` entries of this dtype; an array with one column is accepted."""
    given = dense(given, what)
    check_shape(given.shape, n, what)
    return values(given, dtype, what, may_vanish)
