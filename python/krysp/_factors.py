"""Complete factorizations, called as those of SciPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike

from . import _input
from . import _krysp
from ._preconditioners import Preconditioner
from ._types import FloatArray, Matrix

# the largest backward errors of solutions that are returned
LARGEST_DOUBLE, LARGEST_SINGLE = 1e-10, 1e-5

# maximum number of refinement steps: a step gains several digits, or none
REFINEMENTS = 5


class Factors:
    """Complete factors of a square matrix, made by `splu`: each solve takes two triangular solves and iterative refinement.

    Attributes
    ----------
    shape : tuple of int
        The shape of the matrix.
    """

    shape: tuple[int, int]

    def __init__(self, A: Matrix, name: str) -> None:
        matrix = _input.sparse(A)
        self.shape = matrix.shape
        if matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"the matrix must be square; got {matrix.shape[0]} x {matrix.shape[1]}")
        _input.real(matrix.dtype, "the matrix")
        single = matrix.dtype == _input.SINGLE
        self._dtype: np.dtype[Any] = _input.SINGLE if single else _input.DOUBLE
        self._largest = LARGEST_SINGLE if single else LARGEST_DOUBLE
        # a copy: the residuals of later solves are those of the matrix that was factorized
        self._matrix = matrix.tocsr().astype(self._dtype, copy=True)
        self._factors = Preconditioner(name, self._matrix) if matrix.shape[0] else None
        self._core = None if self._factors is None else self._factors._core
        # the norms ‖A‖∞ and ‖Aᵀ‖∞ (largest row sums of magnitudes)
        self._norms = [float(abs(self._matrix).sum(axis=axis).max()) if matrix.shape[0] else 0.0 for axis in (1, 0)]

    def solve(self, rhs: ArrayLike, trans: str = "N") -> FloatArray:
        """Solves ``A @ x = rhs``, or ``A.T @ x = rhs``.

        Parameters
        ----------
        rhs : array of shape (n,) or (n, k)
        trans : {"N", "T", "H"}
            ``"T"`` and ``"H"`` are for the transpose.

        Returns
        -------
        array of the shape of `rhs`

        Raises
        ------
        KryspError
            If the residual is as large as `rhs`, so that the solution is no better than zero, or if the normwise backward error
            ``norm(rhs - A @ x) / (norm(A) * norm(x) + norm(rhs))``, in the maximum norm, is above 1e-10 (1e-5 in single precision).
        """
        if trans not in ("N", "T", "H"):
            raise ValueError(f"trans must be one of 'N', 'T', 'H'; got {trans!r}")
        given = _input.dense(rhs, "rhs")
        return self._solve(given, "rhs", trans != "N").reshape(given.shape)

    def condition_estimate(self) -> float:
        """Estimates the condition number ``norm(A, 1) * norm(inv(A), 1)`` from a few solves with `A` and its transpose.

        Returns
        -------
        float
            A lower bound up to rounding, rarely less than a third of the condition number (Higham 1988). About ``1e16`` or more, or
            ``1e7`` in single precision, means that no digit of a solution may be right.

        Examples
        --------
        >>> import scipy.sparse as sp, krysp
        >>> krysp.splu(sp.csr_array([[4.0, 0.0], [0.0, 0.5]])).condition_estimate()
        8.0
        """
        return 1.0 if self._factors is None else self._factors.condition_estimate()

    @property
    def nnz(self) -> int:
        """Number of entries stored in both factors, including zeros."""
        return 0 if self._factors is None else self._factors.nnz

    def _solve(self, rhs: Any, what: str, transposed: bool = False) -> FloatArray:
        """Solves for a vector or a matrix of right-hand sides, which error messages call `what`."""
        rows = self.shape[0]
        if rhs.dtype.kind == "f" and not np.isfinite(rhs).all():
            raise _krysp.KryspError(f"{what} has an entry that is infinite or NaN")
        if not _input.has_columns(rhs):
            return self._column(_input.vector(rhs, rows, self._dtype, what), transposed)
        flat = _input.columns(rhs, rows, self._dtype, what)
        columns: list[Any] = [self._column(column, transposed) for column in flat.reshape((rhs.shape[1], rows))]
        x: FloatArray = np.stack(columns, axis=1)
        return x

    def _column(self, rhs: FloatArray, transposed: bool) -> FloatArray:
        """The refined solution for one right-hand side."""
        if self._core is None:
            return rhs.copy()
        matrix = self._matrix.T if transposed else self._matrix
        apply = self._core.apply_transposed if transposed else self._core.apply
        size = self._norms[transposed]

        def residual(x: FloatArray) -> tuple[FloatArray, float]:
            r = rhs - matrix @ x
            norm = float(np.abs(r).max())
            scale = size * float(np.abs(x).max()) + float(np.abs(rhs).max())
            return r, norm / scale if scale != 0.0 else norm

        x: FloatArray = apply(rhs)
        r, error = residual(x)
        for _ in range(REFINEMENTS):
            if not error > np.finfo(self._dtype).eps:
                break
            better = x + apply(r)
            rest, improved = residual(better)
            if not improved < error:
                break
            x, r, error = better, rest, improved
        if float(np.abs(r).max()) >= float(np.abs(rhs).max()) > 0.0:
            raise _krysp.KryspError(
                "the matrix is singular to working precision: the residual of the computed solution is as large as the right-hand "
                "side; try `krysp.solve(A, b)`, whose report describes the attempts"
            )
        if not error <= self._largest:
            raise _krysp.KryspError(
                f"the backward error of the solution is {error:.1e}, more than {self._largest:.0e}; the matrix may be nearly singular: try "
                "`krysp.solve(A, b)`, whose report describes the attempts"
            )
        return x


def splu(A: Matrix, permc_spec: str | None = None, **ignored: Any) -> Factors:
    """Factorizes a square matrix by LU with pivoting, called as ``scipy.sparse.linalg.splu``.

    Parameters
    ----------
    A : sparse matrix or array of SciPy
    permc_spec, diag_pivot_thresh, relax, panel_size, options
        Accepted for compatibility with SciPy, and ignored: krysp chooses ordering and pivots.

    Raises
    ------
    KryspError
        If the matrix is singular to rounding (a pivot is at most 64 machine epsilons of the largest number that its column had), or
        the factors do not fit into memory.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> factors = krysp.splu(sp.csr_array([[0.0, 2.0], [1.0, 3.0]]))
    >>> factors.solve(np.array([2.0, 4.0])), factors.solve(np.array([1.0, 5.0]), "T")
    (array([1., 1.]), array([1., 1.]))
    """
    unknown = set(ignored) - {"diag_pivot_thresh", "relax", "panel_size", "options"}
    if unknown:
        raise TypeError(f"splu() got an unexpected keyword argument {min(unknown)!r}")
    return Factors(A, "lu")


def factorized(A: Matrix) -> Callable[[ArrayLike], FloatArray]:
    """Returns a function that solves ``A @ x = b`` for a given `b`, called as ``scipy.sparse.linalg.factorized``.

    A symmetric matrix with a positive diagonal is factorized by Cholesky's method. Any other symmetric matrix, and one that turns
    out not to be positive definite, is factorized by LDLᵀ, and an unsymmetric matrix by LU. Errors are those of `spsolve`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> solve = krysp.factorized(sp.csr_array([[2.0, 1.0], [1.0, 3.0]]))
    >>> solve(np.array([3.0, 4.0]))
    array([1., 1.])
    """
    factors = Factors(A, "direct")
    return lambda b: factors._solve(_input.dense(b, "b"), "b")
