"""Preconditioners: operators that apply an approximate inverse of a matrix."""

from __future__ import annotations

import html
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator

from . import _input, _known, _krysp
from ._krysp import Matrix
from ._operator import Operator
from ._types import FloatArray
from ._types import Matrix as GivenMatrix


class Preconditioner(LinearOperator):  # type: ignore[misc]
    """An operator that applies ``M⁻¹``, created by `jacobi`, `ilu0`, `ilut`, `ic0`, `fsai`, `spai`, `two_level`, `amg`,
    `saddle_point`, `lu`, `ldl`, `cholesky` or `cudss`.

    Complete factorizations, `lu`, `ldl` and `cholesky`, have `nnz`, `inertia` and `condition_estimate()`, and ``str`` describes them.
    Pass it as `M` to a solver of this package or of SciPy. It is on the device of its matrix: if built from an `Operator` on a
    GPU, it is on that GPU.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, int]

    def __init__(self, name: str, A: Operator | GivenMatrix, **options: Any) -> None:
        self._reordered = isinstance(A, Operator) and A._core.reordered
        self._diagonal = name == "jacobi" and options["block"] is None
        matrix, dtype, shape, self.device = _matrix(A, self._diagonal)
        if "near_null_space" in options:
            options["near_null_space"] = [_input.values(mode, dtype, "near_null_space") for mode in options["near_null_space"]]
        if options.get("schur") is not None and not isinstance(options["schur"], str):
            options["schur"] = _given(options["schur"], dtype)
        self._name = name
        self._core = _krysp.Preconditioner(name, matrix, options)
        super().__init__(dtype, shape)

    def refresh(self, A: Operator | GivenMatrix) -> None:
        """Rebuilds the preconditioner for a matrix with the same pattern; the analysis of the pattern is reused.

        Parameters
        ----------
        A : Operator, or sparse matrix or array of SciPy
            A matrix with the pattern, the shape and the dtype of the one that the preconditioner was built from.

        Raises
        ------
        RuntimeError
            If the preconditioner is in use, by a solve in another thread or by the solve that called this function.
        """
        if getattr(A, "ndim", 2) == 1:
            raise TypeError("a preconditioner must be refreshed with a matrix or an operator, `refresh(A)`; got an array")
        if self._reordered and not isinstance(A, Operator):
            raise TypeError(
                "the preconditioner was built from a reordered operator: refresh the operator with the matrix, then the "
                "preconditioner with the operator"
            )
        matrix, _, shape, _ = _matrix(A, self._diagonal)
        if shape != self.shape:
            raise ValueError(
                f"the matrix must be {self.shape[0]} x {self.shape[1]}, as the preconditioner is; got {shape[0]} x {shape[1]}"
            )
        self._core.refresh(matrix)

    @property
    def T(self) -> NoReturn:
        raise AttributeError(self._no_transpose())

    @property
    def H(self) -> NoReturn:
        raise AttributeError(self._no_transpose())

    def _transpose(self) -> NoReturn:
        raise NotImplementedError(self._no_transpose())

    def _adjoint(self) -> NoReturn:
        raise NotImplementedError(self._no_transpose())

    def _rmatvec(self, x: ArrayLike) -> NoReturn:
        raise NotImplementedError(self._no_transpose())

    def _rmatmat(self, X: ArrayLike) -> NoReturn:
        raise NotImplementedError(self._no_transpose())

    def _no_transpose(self) -> str:
        return f"a preconditioner cannot apply its transpose: build one from the transpose, `krysp.{self._name}(A.T)`"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a preconditioner cannot be pickled: build it in each process, `krysp.{self._name}(A)`")

    def _matvec(self, x: ArrayLike) -> FloatArray:
        return self._core.apply(_input.vector(x, self.shape[0], self.dtype, "x", may_vanish=True))

    def condition_estimate(self) -> float:
        """Estimates the condition number ``norm(A, 1) * norm(inv(A), 1)`` from a few solves, for `lu`, `ldl` and `cholesky`.

        Returns
        -------
        float
            A lower bound up to rounding, rarely less than a third of the condition number (Higham 1988).
        """
        estimate = self._core.condition_estimate()
        if estimate is None:
            raise TypeError(f"{self._name} cannot estimate a condition number; lu, ldl and cholesky can")
        return estimate

    @property
    def nnz(self) -> int:
        """Number of entries stored in the factors, including zeros, for `lu`, `ldl` and `cholesky`."""
        nnz = self._core.nnz()
        if nnz is None:
            raise AttributeError(f"{self._name} has no nnz, because it is not a complete factorization by the CPU")
        return nnz

    @property
    def inertia(self) -> tuple[int, int, int]:
        """Numbers of positive, negative and zero eigenvalues of the matrix, for `ldl` and `cholesky`. The last one is 0: a singular
        matrix is refused.

        Examples
        --------
        >>> import scipy.sparse as sp, krysp
        >>> krysp.ldl(sp.csr_array([[0.0, 2.0], [2.0, 1.0]])).inertia
        (1, 1, 0)
        """
        inertia = self._core.inertia()
        if inertia is None:
            raise AttributeError(f"{self._name} has no inertia; ldl and cholesky have one, unless their last refresh failed")
        return (*inertia, 0)

    def __str__(self) -> str:
        facts = self._core.factors()
        return self._core.text() if facts is None else facts

    def __repr__(self) -> str:
        return f"<krysp.{self._name} {self.shape[0]} x {self.shape[1]}, {self.dtype}, {self.device}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def _matrix(A: Any, diagonal: bool) -> tuple[Matrix, np.dtype[Any], tuple[int, int], str]:
    """The matrix for the compiled module, its dtype, shape and device. With `diagonal`, only the diagonal of a SciPy matrix."""
    if isinstance(A, Operator):
        return A._core, A.dtype, A.shape, A.device
    A = _input.sparse(A)
    dtype = _input.real(A.dtype, "the matrix")
    if diagonal:
        return Matrix.diagonal(_input.rows(A, dtype)), dtype, A.shape, "cpu"
    layout, shape, first, second, data = _input.arrays(A)
    matrix = Matrix(layout, shape, first, second, _input.values(data, dtype), "given", False, False)
    return matrix, dtype, shape, "cpu"


def _given(A: Any, dtype: np.dtype[Any]) -> Matrix:
    """A matrix argument of an option, converted to this dtype."""
    layout, shape, first, second, data = _input.arrays(_input.sparse(A))
    return Matrix(layout, shape, first, second, _input.values(data, dtype), "given", False, False)


def jacobi(A: Operator | GivenMatrix, block: int | None = None) -> Preconditioner:
    """The inverse of the diagonal, or of diagonal blocks.

    Parameters
    ----------
    A : Operator, or sparse matrix or array of SciPy
    block : int, optional
        Number of rows of a block, up to 32, usually the number of unknowns per node. Default: the diagonal only.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> M = krysp.jacobi(sp.csr_array([[2.0, 1.0], [1.0, 4.0]]))
    >>> M @ np.ones(2)
    array([0.5 , 0.25])
    """
    return Preconditioner("jacobi", A, block=None if block is None else _input.count(block, "block", 1))


def ilu0(A: Operator | GivenMatrix) -> Preconditioner:
    """ILU(0), an incomplete LU factorization with the pattern of the matrix, for any matrix. CPU only.

    Parameters
    ----------
    A : Operator, or sparse matrix or array of SciPy

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> A = sp.csr_array([[4.0, 1.0], [2.0, 3.0]])
    >>> krysp.ilu0(A) @ (A @ np.array([1.0, 2.0]))
    array([1., 2.])
    """
    return Preconditioner("ilu0", A)


def ilut(A: Operator | GivenMatrix, *, drop_tolerance: float = 1e-3, fill: float = 5.0) -> Preconditioner:
    """ILUT, an incomplete LU factorization with pivoting and threshold dropping, for difficult unsymmetric systems. CPU only.

    Parameters
    ----------
    A : Operator, or sparse matrix or array of SciPy
    drop_tolerance : float
        Entries below this tolerance times the mean magnitude of their row's entries in the matrix are dropped.
    fill : float
        Maximum number of additional entries of the factors, as a multiple of the number of entries of the matrix.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> line = sp.diags_array([-1.5, 2.0, -0.5], offsets=[-1, 0, 1], shape=(30, 30))
    >>> A = sp.kronsum(line, line, format="csr")
    >>> result = krysp.bicgstab(A, np.ones(900), M=krysp.ilut(A), rtol=1e-8)
    >>> result.info, result.report.iterations < 10
    (0, True)
    """
    tolerance, fill = _input.number(drop_tolerance, "drop_tolerance"), _input.number(fill, "fill")
    return Preconditioner("ilut", A, drop_tolerance=tolerance, fill=fill)


def ic0(A: Operator | GivenMatrix) -> Preconditioner:
    """IC(0), incomplete Cholesky with the pattern of the matrix, for symmetric positive definite matrices. CPU only.

    If a pivot is not positive, the factorization is repeated with a larger diagonal until all pivots are positive.

    Parameters
    ----------
    A : Operator, or sparse matrix or array of SciPy
    """
    return Preconditioner("ic0", A)


def lu(A: Operator | GivenMatrix) -> Preconditioner:
    """A complete LU factorization with pivoting, for any matrix: one application solves the system. CPU only.

    Parameters
    ----------
    A : Operator, or sparse matrix or array of SciPy

    Raises
    ------
    KryspError
        If the factors would not fit into memory, or the matrix is singular.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> A = sp.csr_array([[0.0, 1.0], [2.0, 3.0]])
    >>> krysp.gmres(A, A @ np.array([1.0, 2.0]), M=krysp.lu(A)).x
    array([1., 2.])
    """
    return Preconditioner("lu", A)


def cholesky(A: Operator | GivenMatrix) -> Preconditioner:
    """A complete Cholesky factorization, for symmetric positive definite matrices: one application solves the system. CPU only.

    Parameters
    ----------
    A : Operator, or sparse matrix or array of SciPy

    Raises
    ------
    KryspError
        If the factors would not fit into memory, or the matrix is not positive definite.
    """
    return Preconditioner("cholesky", A)


def ldl(A: Operator | GivenMatrix) -> Preconditioner:
    """A complete factorization ``L @ D @ L.T``, for symmetric matrices, also indefinite ones: one application solves the system.
    CPU only. Use it with `gmres`; with `minres` or `cg` only if `A` is positive definite.

    Parameters
    ----------
    A : Operator, or sparse matrix or array of SciPy

    Raises
    ------
    KryspError
        If the factors would not fit into memory, or the matrix is singular.
    ValueError
        If the matrix is not symmetric to rounding.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> A = sp.csr_array([[0.0, 2.0], [2.0, 1.0]])
    >>> krysp.gmres(A, A @ np.array([2.0, 1.0]), M=krysp.ldl(A)).info, krysp.ldl(A) @ np.array([2.0, 5.0])
    (0, array([2., 1.]))
    """
    return Preconditioner("ldl", A)


def cudss(A: Operator) -> Preconditioner:
    """A complete factorization on a GPU by NVIDIA's cuDSS, for any matrix: one application solves the system. GPU only.

    ``pip install nvidia-cudss-cu13`` installs the library. Use it with `gmres`. A factorization cannot be interrupted, and results
    may differ bitwise from run to run. ``str`` of the preconditioner has the version, the times, and the number of pivots that were
    too small and were replaced.

    Parameters
    ----------
    A : Operator
        An operator on a GPU.

    Raises
    ------
    KryspError
        If the library is not installed, the factors do not fit into the memory of the GPU, or the matrix is singular to rounding.
    ValueError
        If the operator is not on a GPU.
    """
    return Preconditioner("cudss", A)


def fsai(A: Operator | GivenMatrix) -> Preconditioner:
    """FSAI, a factorized sparse approximate inverse, for symmetric positive definite matrices. One application costs two SpMVs.

    Parameters
    ----------
    A : Operator, or sparse matrix or array of SciPy
    """
    return Preconditioner("fsai", A)


def spai(A: Operator | GivenMatrix) -> Preconditioner:
    """SPAI, a sparse approximate inverse, for any matrix. One application costs one SpMV.

    Parameters
    ----------
    A : Operator, or sparse matrix or array of SciPy
    """
    return Preconditioner("spai", A)


def two_level(A: Operator | GivenMatrix) -> Preconditioner:
    """Jacobi with a coarse space that is solved directly, for large symmetric positive definite matrices.

    Parameters
    ----------
    A : Operator, or sparse matrix or array of SciPy
    """
    return Preconditioner("two_level", A)


def amg(
    A: Operator | GivenMatrix,
    near_null_space: ArrayLike | None = None,
    *,
    strength: float = 0.1,
    sweeps: int = 2,
    max_coarse_size: int = 600,
    smooth_finest: bool | None = None,
) -> Preconditioner:
    """One V-cycle of smoothed aggregation AMG, for symmetric positive definite matrices, especially large ones.

    Parameters
    ----------
    A : Operator, or sparse matrix or array of SciPy
    near_null_space : array of shape (n, k), optional
        Basis of the near-null space: the null space of the operator without boundary conditions, for elasticity the result of
        `rigid_body_modes`. Default: the constant vector.
    strength : float
        A connection is strong if its magnitude is at least this fraction of the strongest connection of either node.
    sweeps : int
        Number of pre-smoothing sweeps, and of post-smoothing sweeps, on each level.
    max_coarse_size : int
        Maximum number of rows of the coarsest level, whose matrix is inverted.
    smooth_finest : bool, optional
        Whether to smooth the prolongator of the finest level, too. This reduces the iterations, but more than doubles the setup
        time on a CPU: use it for many solves. If it is false, the finest level uses unsmoothed aggregation, if the matrix is
        symmetric with one unknown per node, and `near_null_space` is not given. Default: false on a CPU, true on a GPU.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(60, 60))
    >>> A = sp.kronsum(line, line, format="csr")
    >>> result = krysp.cg(A, np.ones(3600), M=krysp.amg(A), rtol=1e-8)
    >>> result.info, result.report.iterations < 25
    (0, True)
    """
    vectors: list[FloatArray] = []
    if near_null_space is not None:
        array = np.asarray(near_null_space)
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2 or array.shape[0] != A.shape[0]:
            got = np.shape(near_null_space)
            raise ValueError(f"near_null_space must have shape ({A.shape[0]},) or ({A.shape[0]}, k); got {got}")
        vectors = [array[:, k] for k in range(array.shape[1])]
    options = {
        "strength": _input.number(strength, "strength"),
        "sweeps": _input.count(sweeps, "sweeps", 1),
        "max_coarse_size": _input.count(max_coarse_size, "max_coarse_size"),
        "smooth_finest": None if smooth_finest is None else bool(smooth_finest),
    }
    return Preconditioner("amg", A, near_null_space=vectors, **options)


def saddle_point(
    A: Operator | GivenMatrix,
    schur: str | GivenMatrix | None = None,
    *,
    fields: ArrayLike | None = None,
    block_diagonal: bool = False,
) -> Preconditioner:
    """A block preconditioner for saddle point systems ``[A Bᵀ; B −C]``, from Stokes flow or constrained optimization. CPU only.

    Use it with `idr`, `fgmres` or `gmres`; with `block_diagonal=True`, with `minres`.

    Parameters
    ----------
    A : Operator, or sparse matrix or array of SciPy
    schur : str, or sparse matrix or array of SciPy, optional
        Approximation of the Schur complement ``C + B A⁻¹ Bᵀ``: ``"diagonal"``, the scaled diagonal of ``C + B D⁻¹ Bᵀ`` with
        ``D = diag(A)``; ``"sparse"``, ``C + B D⁻¹ Bᵀ`` itself; ``"lsc"``, the least-squares commutator; or a matrix of the second
        field, for Stokes flow the pressure mass matrix divided by the viscosity. Default: ``"sparse"`` for a block ``A`` that is nearly
        diagonal, ``"diagonal"`` for other symmetric ones, ``"lsc"`` for unsymmetric ones.
    fields : array of n integers, optional
        The field of each unknown: 0 for those of ``A``, 1 for those of ``C``. By default, rows whose diagonal entry is negative,
        zero or missing belong to the second field.
    block_diagonal : bool
        Whether the preconditioner is block diagonal and positive definite, for symmetric matrices; otherwise it is block
        triangular.

    Raises
    ------
    KryspError
        If the matrix is not a saddle point system; the message says why.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> B = sp.diags_array([1.0, -1.0], offsets=[0, 1], shape=(20, 21))
    >>> A = sp.block_array([[sp.eye_array(21), B.T], [B, None]], format="csr")
    >>> result = krysp.minres(A, np.ones(41), M=krysp.saddle_point(A, block_diagonal=True), rtol=1e-8)
    >>> result.info, result.report.iterations <= 3
    (0, True)
    """
    of_unknown = None if fields is None else _known.indices(fields, A.shape[0], "fields", 2).tolist()
    return Preconditioner("saddle_point", A, schur=schur, fields=of_unknown, block_diagonal=bool(block_diagonal))


def rigid_body_modes(points: ArrayLike, *, by_component: bool = False) -> FloatArray:
    """The rigid body modes (translations and rotations) as columns: the near-null space of elasticity, for `near_null_space` of `amg`.

    Parameters
    ----------
    points : array of shape (nodes, 2) or (nodes, 3)
        Coordinates of the nodes.
    by_component : bool
        Whether the unknowns are ordered by component (x of all nodes, then y, then z) instead of by node.

    Returns
    -------
    array of shape (unknowns, 3) in the plane, (unknowns, 6) in space

    Examples
    --------
    >>> import krysp
    >>> krysp.rigid_body_modes([[0.0, 0.0], [2.0, 0.0]]).shape
    (4, 3)
    """
    places = np.asarray(points)
    _input.real(places.dtype, "points")
    places = places.astype(np.float64)
    if places.ndim != 2:
        raise ValueError(f"points must have shape (nodes, 2) or (nodes, 3); got {places.shape}")
    return np.column_stack(_krysp.rigid_body_modes(places.tolist(), by_component))
