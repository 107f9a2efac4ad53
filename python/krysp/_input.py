"""What users give, brought into the few shapes that the compiled part takes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from . import _gpu
from ._types import FloatArray, IndexArray

SINGLE = np.dtype(np.float32)
DOUBLE = np.dtype(np.float64)
# formats whose `data` are one value for each entry, in an order that is kept
ORDERED = ("csr", "csc", "coo")


def real(dtype: Any, what: str) -> np.dtype[Any]:
    """The element type to compute with for data of this type: single precision only for `float32`."""
    dtype = DOUBLE if dtype is None else np.dtype(dtype)
    if dtype.kind == "c":
        raise ValueError(
            f"{what} is complex, and krysp computes with real numbers: take `.real` if imaginary parts are zero, else split the "
            "system into real and imaginary parts"
        )
    if dtype.kind not in "fiub":
        raise TypeError(f"{what} has elements of type {dtype}: numbers are needed")
    return SINGLE if dtype == SINGLE else DOUBLE


def sparse(matrix: Any) -> Any:
    """The matrix, if it is sparse and has two dimensions; else an error that says what to write instead."""
    if not issparse(matrix):
        matrix = _gpu.matrix_of(matrix)
    if not issparse(matrix):
        if isinstance(matrix, (np.ndarray, list, tuple)):
            raise TypeError(
                "a dense matrix: `scipy.sparse.csr_array(A)` stores its entries that are not zero, "
                "`scipy.sparse.linalg.aslinearoperator(A)` multiplies with all of them"
            )
        raise TypeError(f"a sparse matrix or array of SciPy is needed, this is a {type(matrix).__name__}")
    if matrix.ndim != 2:
        raise ValueError(f"a matrix has two dimensions, this array has {matrix.ndim}")
    return matrix


def values(data: Any, dtype: np.dtype[Any], what: str = "the array of values") -> FloatArray:
    """Values of entries, of the element type and side by side. Complex ones are refused."""
    data = np.asarray(data)
    real(data.dtype, what)
    return np.ascontiguousarray(data, dtype=dtype).reshape(-1)


def rows(matrix: Any, dtype: np.dtype[Any]) -> tuple[int, IndexArray, IndexArray, FloatArray]:
    """Columns, offsets, indices and values of compressed rows; arrays that fit are those of the matrix itself."""
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
    """Indices as 32 bits without a sign, in the memory they have where they have 32 bits."""
    if indices.dtype == np.int32:
        return np.ascontiguousarray(indices).view(np.uint32)
    if len(indices) and not 0 <= indices.min() <= indices.max() < 2**32:
        raise ValueError(f"{what} has an entry that is negative or has more than 32 bits")
    return np.ascontiguousarray(indices, dtype=np.uint32)


def arrays(matrix: Any) -> tuple[str, tuple[int, int], NDArray[Any], NDArray[Any], Any]:
    """A name of the layout, the shape, two arrays of indices and the values, in the order in which the user has them."""
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
    """The name of the format in which a user gives a matrix; "csr" for tensors, whose values are in that order."""
    return str(getattr(matrix, "format", "csr"))


def check_shape(shape: tuple[int, ...], n: int, what: str) -> None:
    """An error that lists the shapes a vector of `n` entries may have, unless this is one of them."""
    if shape in ((n,), (n, 1)):
        return
    if len(shape) == 1:
        raise ValueError(f"{what} must have {n} entries, as the matrix demands; got {shape[0]}")
    raise ValueError(f"{what} must be one-dimensional or have shape ({n}, 1); got {shape}")


def refresh(core: Any, new: Any, dtype: np.dtype[Any], given: str) -> None:
    """New values for a matrix or a plan that was made of a matrix in the format `given`: an array in the order of the arrays that it
    was made from, or a matrix.
    """
    new = new if issparse(new) else _gpu.matrix_of(new)
    if given not in ORDERED and not issparse(new):
        raise TypeError(
            f"the matrix was given in the format {given.upper()}, whose `data` are in another order: pass the matrix, `refresh(A)`"
        )
    if issparse(new):
        layout, shape, first, second, data = arrays(new)
        core.refresh_from(layout, shape, first, second, values(data, dtype, "the matrix"))
    else:
        core.refresh(values(new, dtype))


def vector(given: Any, n: int, dtype: np.dtype[Any], what: str) -> FloatArray:
    """A vector of `n` entries, of the element type and side by side; also one with a single column."""
    given = np.asarray(given)
    check_shape(given.shape, n, what)
    return values(given, dtype, what)
