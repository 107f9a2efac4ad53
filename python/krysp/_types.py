"""Types of the arguments of the public functions, for type checkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
IndexArray: TypeAlias = NDArray[np.int32] | NDArray[np.int64] | NDArray[np.uint32]


class SparseMatrix(Protocol):
    """A sparse matrix or array of SciPy or CuPy, in any format."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def nnz(self) -> int: ...
    def tocsr(self) -> Any: ...


class SparseTensor(Protocol):
    """A sparse tensor of PyTorch, CSR or COO."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def layout(self) -> Any: ...
    @property
    def is_sparse(self) -> bool: ...


class HasMatvec(Protocol):
    """A SciPy `LinearOperator`, or an object with the same attributes: an `Operator`, or a PyAMG preconditioner."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...
    def matvec(self, x: Any, /) -> Any: ...


Matrix: TypeAlias = SparseMatrix | SparseTensor
Function: TypeAlias = Callable[[Any], ArrayLike]
Linear: TypeAlias = Matrix | HasMatvec | Function
