"""Preconditioners: operators that apply the inverse of something close to a matrix."""

from __future__ import annotations

import html
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator

from . import _input
from . import _krysp
from ._krysp import Matrix
from ._operator import Operator
from ._types import FloatArray
from ._types import Matrix as GivenMatrix


class Preconditioner(LinearOperator):  # type: ignore[misc]
    """An operator that applies ``M⁻¹``, made by `jacobi`, `ilu0`, `ilut`, `ic0`, `fsai`, `spai`, `two_level`, `amg`,
    `saddle_point`, `lu` or `cholesky`.

    Give it to a solver as `M`, of this package or of SciPy. It lives where its matrix does: made of an `Operator` on a GPU, it
    is on that GPU.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, int]

    def __init__(self, name: str, A: Operator | GivenMatrix, **options: Any) -> None:
        self._renumbered = isinstance(A, Operator) and A._renumbered
        self._diagonal = name == "jacobi" and options["block"] is None
        matrix, dtype, shape, self.device = _matrix(A, self._diagonal)
        if "modes" in options:
            options["modes"] = [_input.values(mode, dtype, "modes") for mode in options["modes"]]
        if options.get("schur") is not None and not isinstance(options["schur"], str):
            options["schur"] = _given(options["schur"], dtype)
        self._name = name
        self._core = _krysp.Preconditioner(name, matrix, options)
        super().__init__(dtype, shape)

    def refresh(self, A: Operator | GivenMatrix) -> None:
        """Takes new values from a matrix of the same pattern; what was analysed stays.

        Parameters
        ----------
        A : Operator, or sparse matrix or array of SciPy
            With the pattern, the shape and the element type of the matrix that this was made of.
        """
        if getattr(A, "ndim", 2) == 1:
            raise TypeError("the values alone, where a preconditioner needs the matrix or the operator: `refresh(A)`")
        if self._renumbered and not isinstance(A, Operator):
            raise TypeError("it was made of a renumbered operator: refresh that with the matrix, and this with the operator")
        matrix, _, shape, _ = _matrix(A, self._diagonal)
        if shape != self.shape:
            raise ValueError(f"the matrix is {shape[0]} x {shape[1]}, the preconditioner was made for {self.shape}")
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
        return f"a preconditioner does not apply its transpose: make one of the transpose, `krysp.{self._name}(A.T)`"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a preconditioner does not pickle: make it in each process, `krysp.{self._name}(A)`")

    def _matvec(self, x: ArrayLike) -> FloatArray:
        return self._core.apply(_input.vector(x, self.shape[0], self.dtype, "x"))

    def __str__(self) -> str:
        return self._core.text()

    def __repr__(self) -> str:
        return f"<krysp.{self._name} {self.shape[0]} x {self.shape[1]}, {self.dtype}, {self.device}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def _matrix(A: Any, diagonal: bool) -> tuple[Matrix, np.dtype[Any], tuple[int, int], str]:
    """What the compiled part takes; of SciPy's arrays no more than the diagonal, if that is enough."""
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
    """A matrix that an option takes, of this element type."""
    layout, shape, first, second, data = _input.arrays(_input.sparse(A))
    return Matrix(layout, shape, first, second, _input.values(data, dtype), "given", False, False)


def jacobi(A: Operator | GivenMatrix, block: int | None = None) -> Preconditioner:
    """The inverse of the diagonal, or of diagonal blocks.

    Parameters
    ----------
    A : Operator, or sparse matrix or array of SciPy
    block : int, optional
        Rows of a block, up to 32: as many as a node has unknowns.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> M = krysp.jacobi(sp.csr_array([[2.0, 1.0], [1.0, 4.0]]))
    >>> M @ np.ones(2)
    array([0.5 , 0.25])
    """
    return Preconditioner("jacobi", A, block=block)


def ilu0(A: Operator | GivenMatrix) -> Preconditioner:
    """An incomplete LU factorisation with the pattern of the matrix, for any matrix. On a CPU.

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
    """An incomplete LU factorisation with pivoting, which keeps what is large: for hard systems that are not symmetric. On a CPU.

    Parameters
    ----------
    A : Operator, or sparse matrix or array of SciPy
    drop_tolerance : float
        What is dropped: entries below this, times the mean magnitude of their row's entries in the matrix.
    fill : float
        How many entries the factors may have beyond those of the matrix, as a multiple of these.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> line = sp.diags_array([-1.5, 2.0, -0.5], offsets=[-1, 0, 1], shape=(30, 30))
    >>> A = sp.kronsum(line, line, format="csr")
    >>> result = krysp.bicgstab(A, np.ones(900), M=krysp.ilut(A), rtol=1e-8)
    >>> result.info, result.report.iterations < 10
    (0, True)
    """
    return Preconditioner("ilut", A, drop_tolerance=drop_tolerance, fill=fill)


def ic0(A: Operator | GivenMatrix) -> Preconditioner:
    """An incomplete Cholesky factorisation with the pattern of the matrix, for symmetric positive definite ones. On a CPU.

    Where a pivot would not be positive, the diagonal is raised until all are.

    Parameters
    ----------
    A : Operator, or sparse matrix or array of SciPy
    """
    return Preconditioner("ic0", A)


def lu(A: Operator | GivenMatrix) -> Preconditioner:
    """An LU factorisation with all of its fill, for any matrix: one application solves the system. On a CPU.

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
    """A Cholesky factorisation with all of its fill, for symmetric positive definite matrices. On a CPU.

    Parameters
    ----------
    A : Operator, or sparse matrix or array of SciPy

    Raises
    ------
    KryspError
        If the factors would not fit into memory, or the matrix is not positive definite.
    """
    return Preconditioner("cholesky", A)


def fsai(A: Operator | GivenMatrix) -> Preconditioner:
    """A factorised sparse approximate inverse, for symmetric positive definite matrices: two products an application.

    Parameters
    ----------
    A : Operator, or sparse matrix or array of SciPy
    """
    return Preconditioner("fsai", A)


def spai(A: Operator | GivenMatrix) -> Preconditioner:
    """A sparse approximate inverse, for any matrix: one product an application.

    Parameters
    ----------
    A : Operator, or sparse matrix or array of SciPy
    """
    return Preconditioner("spai", A)


def two_level(A: Operator | GivenMatrix) -> Preconditioner:
    """The diagonal, and a coarse space that is solved exactly: for symmetric positive definite matrices that are large.

    Parameters
    ----------
    A : Operator, or sparse matrix or array of SciPy
    """
    return Preconditioner("two_level", A)


def amg(
    A: Operator | GivenMatrix,
    modes: ArrayLike | None = None,
    *,
    strength: float = 0.1,
    sweeps: int = 2,
    coarsest: int = 600,
    smoothed: bool = False,
) -> Preconditioner:
    """Algebraic multigrid, one V-cycle: for symmetric positive definite matrices, the larger the better.

    Parameters
    ----------
    A : Operator, or sparse matrix or array of SciPy
    modes : array of shape (n, k), optional
        Vectors that the matrix maps to nearly nothing, but for boundary conditions: `rigid_motions` for elasticity. If not
        given, constants.
    strength : float
        A connection is strong if it is at least this part of the strongest of either node.
    sweeps : int
        Sweeps of the smoother before and after each coarse correction.
    coarsest : int
        A level of so many rows is inverted.
    smoothed : bool
        Fewer iterations for a setup that takes twice as long and more, as for many solves: in host memory the finest level's
        aggregates stay as they are otherwise, where the matrix is symmetric with one unknown a node. A GPU always smooths.

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
    if modes is not None:
        array = np.asarray(modes)
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2 or array.shape[0] != A.shape[0]:
            raise ValueError(f"modes has shape {array.shape}: one row for each of the {A.shape[0]} of the matrix is needed")
        vectors = [array[:, k] for k in range(array.shape[1])]
    return Preconditioner("amg", A, modes=vectors, strength=strength, sweeps=sweeps, coarsest=coarsest, smoothed=smoothed)


def saddle_point(
    A: Operator | GivenMatrix,
    schur: str | GivenMatrix | None = None,
    *,
    fields: ArrayLike | None = None,
    block_diagonal: bool = False,
) -> Preconditioner:
    """A block preconditioner of a saddle point system ``[A Bᵀ; B −C]``: Stokes and Oseen flow, optimization with constraints. On a CPU.

    For `idr`, `fgmres` and `gmres`; with `block_diagonal` for `minres`.

    Parameters
    ----------
    A : Operator, or sparse matrix or array of SciPy
    schur : str, or sparse matrix or array of SciPy, optional
        How the Schur complement ``C + B A⁻¹ Bᵀ`` is approximated: ``"diagonal"``, the scaled diagonal of ``C + B D⁻¹ Bᵀ`` with ``D = diag(A)``;
        ``"sparse"``, that matrix; ``"lsc"``, the least-squares commutator; or a given matrix of the second field: for Stokes flow the pressure mass matrix
        divided by the viscosity. If not given, ``"sparse"`` for a block ``A`` that is nearly diagonal, ``"diagonal"`` for other symmetric ones, ``"lsc"`` for
        unsymmetric ones.
    fields : array of n integers, optional
        The field of each unknown: 0 for those of ``A``, 1 for those of ``C``. If not given, rows with a diagonal that is negative, zero or missing are the second field.
    block_diagonal : bool
        Block diagonal and positive definite, for a symmetric matrix; block triangular otherwise.

    Raises
    ------
    KryspError
        If the matrix is no saddle point: the message says why.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> B = sp.diags_array([1.0, -1.0], offsets=[0, 1], shape=(20, 21))
    >>> A = sp.block_array([[sp.eye_array(21), B.T], [B, None]], format="csr")
    >>> result = krysp.minres(A, np.ones(41), M=krysp.saddle_point(A, block_diagonal=True), rtol=1e-8)
    >>> result.info, result.report.iterations <= 3
    (0, True)
    """
    of_unknown = None if fields is None else np.asarray(fields).astype(np.uint8).tolist()
    return Preconditioner("saddle_point", A, schur=schur, fields=of_unknown, block_diagonal=block_diagonal)


def rigid_motions(points: ArrayLike, *, by_component: bool = False) -> FloatArray:
    """The motions of a rigid body, as columns: the modes of elasticity for `amg`.

    Parameters
    ----------
    points : array of shape (nodes, 2) or (nodes, 3)
        Where the nodes are.
    by_component : bool
        Unknowns are numbered by component: the first of all nodes, then the second. If not, by node.

    Returns
    -------
    array of shape (unknowns, 3) in the plane, (unknowns, 6) in space

    Examples
    --------
    >>> import krysp
    >>> krysp.rigid_motions([[0.0, 0.0], [2.0, 0.0]]).shape
    (4, 3)
    """
    places = np.asarray(points)
    _input.real(places.dtype, "points")
    places = places.astype(np.float64)
    if places.ndim != 2:
        raise ValueError(f"points has shape {places.shape}: one row for each node is needed")
    return np.column_stack(_krysp.rigid_motions(places.tolist(), by_component))
