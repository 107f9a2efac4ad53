"""`solve` for one system, `Plan` for many solves with one matrix, and `spsolve`."""

from __future__ import annotations

import html
import os
import time
from typing import Any, NoReturn

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike

from . import _gpu, _input, _known, _krysp
from ._factors import Factors
from ._operator import place
from ._result import Result, one_by_one
from ._types import FloatArray, Matrix, SparseMatrix


class Plan:
    """A solver for many systems with one matrix, whose format, method and preconditioner the library chooses.

    ``print(plan)`` shows the analysis of the matrix, and the list of candidates in their order, with reasons.

    Parameters
    ----------
    A : sparse matrix or array of SciPy
    device : str
        ``"cpu"``, ``"cuda:0"`` for the first GPU, or ``"auto"`` for the one with the shorter expected time. The estimate for a
        GPU includes what this process has not done yet: creating the context, compiling kernels, copying the matrix.
    rtol : float, optional
        Solves end when ``norm(b - A @ x) <= rtol * norm(b)``. Default: 1e-8; in single precision 3.5e-4.
    solves : int, optional
        Expected number of solves, over which setup costs are amortized. By default, an expensive preconditioner is built once the
        work done so far justifies its cost.
    values_change : bool
        Whether the values will change, by `refresh`.
    maxiter : int, optional
        Maximum number of iterations of a solve, summed over all attempts; with several right-hand sides, for each of them.
    time_limit : float, optional
        Maximum duration of a solve in seconds; with several right-hand sides, for each of them. Infinity is no limit.
    coordinates : array of shape (nodes, 2) or (nodes, 3), optional
        Coordinates of the nodes, for elasticity: the unknowns are displacements, 2 or 3 consecutive ones for each node. Multigrid
        then uses the rigid body modes as near-null space, which reduces the iterations. With `components`, one row for each unknown.
    components : array of shape (n,), optional
        Direction of the displacement of each unknown: 0 for x, 1 for y, 2 for z. Needed if boundary conditions have removed
        unknowns of some nodes, or if the unknowns of a node are not consecutive.
    near_null_space : array of shape (n,) or (n, k), optional
        Basis of the near-null space, as columns: the null space of the operator without boundary conditions.
    null_space : "constant", or array of shape (n,) or (n, k), optional
        Basis of the null space of a singular symmetric matrix, as columns. It is projected out of `b` and of the solution: ``info`` and the
        report are those of the `b` that remains, and ``report.removed`` is the norm of what was removed.
    symmetric, positive_definite : bool, optional
        Declared properties of the matrix. By default they are detected.
    fields : array of shape (n,), optional
        The field of each unknown of a saddle point system: 0 for velocities, 1 for pressures. Larger numbers are accepted, but no
        candidate uses more than two fields.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(40, 40))
    >>> A = sp.kronsum(line, line, format="csr")
    >>> plan = krysp.Plan(A, device="cpu", values_change=True)
    >>> x, info = plan.solve(np.ones(1600))
    >>> plan.refresh(2.0 * A.data)
    >>> y, info = plan.solve(np.ones(1600))
    >>> bool(np.allclose(x, 2.0 * y, rtol=1e-5))
    True
    """

    def __init__(
        self,
        A: Matrix,
        device: str = "auto",
        *,
        rtol: float | None = None,
        solves: int | None = None,
        values_change: bool = False,
        maxiter: int | None = None,
        time_limit: float | None = None,
        coordinates: ArrayLike | None = None,
        components: ArrayLike | None = None,
        near_null_space: ArrayLike | None = None,
        null_space: ArrayLike | str | None = None,
        symmetric: bool | None = None,
        positive_definite: bool | None = None,
        fields: ArrayLike | None = None,
    ) -> None:
        known = dict(
            coordinates=coordinates,
            components=components,
            near_null_space=near_null_space,
            null_space=null_space,
            symmetric=symmetric,
            positive_definite=positive_definite,
            fields=fields,
        )
        self._make(A, device, rtol, solves, values_change, maxiter, time_limit, known, None)

    def _make(
        self,
        A: Matrix,
        device: str,
        rtol: float | None,
        solves: int | None,
        values_change: bool,
        maxiter: int | None,
        time_limit: float | None,
        known: dict[str, Any],
        saved: str | None,
    ) -> None:
        layout, shape, first, second, data = _input.arrays(A)
        self._given = _input.format_of(A)
        self.dtype = _input.real(data.dtype, "the matrix")
        self.shape = shape
        # a saved plan belongs to one kind of device; only a new plan can choose
        where = "auto" if str(device).lower() == "auto" and saved is None else place(device)
        values = _input.values(data, self.dtype, "the matrix")
        self._core = _krysp.Plan(
            layout,
            shape,
            first,
            second,
            values,
            where,
            None if rtol is None else _input.not_negative(rtol, "rtol"),
            None if solves is None else _input.count(solves, "solves"),
            bool(values_change),
            None if maxiter is None else _input.count(maxiter, "maxiter"),
            None if time_limit is None else _input.not_negative(time_limit, "time_limit"),
            _known.checked(shape[0], **known),
            saved,
        )
        self.device = self._core.device

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        A: Matrix,
        device: str = "auto",
        *,
        rtol: float | None = None,
        maxiter: int | None = None,
        time_limit: float | None = None,
    ) -> Plan:
        """Loads a plan that `save` wrote: the first solve skips the planning, and on a CPU also the setup.

        Parameters
        ----------
        path : str or path
        A : sparse matrix or array of SciPy
            A matrix with the same sparsity pattern as when the plan was saved. If its values differ, the plan is refreshed with them.
        device : str
            The same kind of device as when the plan was saved: ``"cpu"``, ``"cuda:0"``, or ``"auto"`` for a GPU if there is one.
        rtol, maxiter, time_limit
            As for a new plan. The declared properties of the system, coordinates for example, are in the file.

        Raises
        ------
        KryspError
            If the file is damaged, or was saved by another version, for another kind of processor or for another matrix; the
            message says which.

        Examples
        --------
        >>> import numpy as np, scipy.sparse as sp, krysp, os, tempfile
        >>> A = sp.diags_array([-1.0, 3.0, -1.0], offsets=[-1, 0, 1], shape=(1000, 1000), format="csr")
        >>> plan = krysp.Plan(A, device="cpu")
        >>> x, info = plan.solve(np.ones(1000))
        >>> path = os.path.join(tempfile.mkdtemp(), "plan.krysp")
        >>> plan.save(path)
        >>> y, info = krysp.Plan.load(path, A, device="cpu").solve(np.ones(1000))
        >>> bool(np.array_equal(x, y))
        True
        """
        plan = cls.__new__(cls)
        plan._make(A, device, rtol, None, False, maxiter, time_limit, {}, os.fspath(path))
        return plan

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves the plan and its preconditioner for `load`. Call it after a solve, because the first solve builds most of it.

        Parameters
        ----------
        path : str or path
        """
        self._core.save(os.fspath(path))

    def solve(self, b: ArrayLike, x0: ArrayLike | None = None) -> Result:
        """Solves ``A @ x = b``.

        Parameters
        ----------
        b : array of shape (n,) or (n, k)
            If there are several columns, the first is solved as a single right-hand side. The others use the method and the
            preconditioner that solved the first and, where that is faster, are solved together, with one product of `A` with all
            of their vectors in each iteration. Where conjugate gradients would take many iterations, up to 16 columns share one search space
            (``report.block``); the last digits of `x` then depend on the other columns.
        x0 : array, optional
            The initial guess, of the shape of `b`. Default: zero. With a guess, columns are solved one after the other.

        Returns
        -------
        Result
            Unpacks as ``x, info``, and has ``.report``, whose ``attempts`` list the methods and preconditioners that were tried.
        """
        return self._solve(b, x0, 0.0)

    def _solve(self, b: ArrayLike, x0: ArrayLike | None, planning_seconds: float) -> Result:
        """Solves as `solve`; the report counts `planning_seconds` as part of the setup."""
        n = self.shape[0]
        if _gpu.is_on_gpu(b):
            host = self._solve(_gpu.to_host(b), x0 if x0 is None else _gpu.to_host(x0), planning_seconds)
            return Result(_gpu.like(b, host.x), host.info, host.report, host.reports)
        rhs = _input.dense(b, "b")
        if _input.has_columns(rhs):
            if x0 is not None or n == 0:
                return one_by_one(self.solve, rhs, x0, n, self.dtype)
            x, ended = self._core.solve_many(_input.columns(rhs, n, self.dtype, "b"), n, planning_seconds)
            return Result.of_columns(x.reshape(rhs.shape, order="F"), ended)
        guess = None if x0 is None else _input.vector(x0, n, self.dtype, "x0", may_vanish=True)
        return Result(*self._core.solve(_input.vector(rhs, n, self.dtype, "b"), guess, planning_seconds))

    def refresh(self, values: ArrayLike | Matrix) -> None:
        """Replaces the values of the matrix; the sparsity pattern must be the same.

        Preconditioners are updated where that is possible, and rebuilt otherwise. Unless `symmetric` was declared, the symmetry of the
        new values is examined, and where it has changed, the methods that are considered change with it.

        Parameters
        ----------
        values : array, or sparse matrix or array of SciPy
            A matrix with the same pattern, in any format and with its indices in any order; the pattern is checked. Or the values
            alone, in the order that ``A.data`` had when ``A`` was given, if that was CSR, CSC or COO. SciPy may sort the indices
            of a matrix in place, and its `data` with them: pass the matrix if that can happen.

        Raises
        ------
        ValueError
            If the pattern differs (the message names the first row), or a value is infinite, NaN or complex. The old values are
            kept.
        """
        _input.refresh(self._core, values, self.shape, self.dtype, self._given)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a plan cannot be pickled: save it with `plan.save(path)`, and load it in another process with `krysp.Plan.load(path, A)`"
        )

    def __str__(self) -> str:
        return self._core.text()

    def __repr__(self) -> str:
        return f"<krysp.Plan {self.shape[0]} x {self.shape[1]}, {self.dtype}, {self.device}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def solve(
    A: Matrix,
    b: ArrayLike,
    *,
    rtol: float | None = None,
    device: str = "auto",
    time_limit: float | None = None,
    coordinates: ArrayLike | None = None,
    components: ArrayLike | None = None,
    near_null_space: ArrayLike | None = None,
    null_space: ArrayLike | str | None = None,
    symmetric: bool | None = None,
    positive_definite: bool | None = None,
    fields: ArrayLike | None = None,
) -> Result:
    """Solves ``A @ x = b`` with a method and a preconditioner that the library chooses; the report lists the attempts.

    For right-hand sides that are not known at the same time create a `Plan`.

    Parameters
    ----------
    A : sparse matrix or array of SciPy
    b : array of shape (n,) or (n, k)
    rtol : float, optional
        The solve ends when ``norm(b - A @ x) <= rtol * norm(b)``. Default: 1e-8; in single precision 3.5e-4.
    device : str
        ``"cpu"``, ``"cuda:0"``, or ``"auto"`` for the one with the shorter expected time.
    time_limit : float, optional
        Maximum duration in seconds.
    coordinates, components, near_null_space, null_space, symmetric, positive_definite, fields
        Declared properties of the system, as for a `Plan`.

    Returns
    -------
    Result
        Unpacks as ``x, info``, and has ``.report``.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> A = sp.diags_array([-1.0, 3.0, -1.0], offsets=[-1, 0, 1], shape=(1000, 1000), format="csr")
    >>> x, info = krysp.solve(A, np.ones(1000))
    >>> info, bool(np.linalg.norm(A @ x - 1.0) < 1e-8 * np.sqrt(1000))
    (0, True)
    """
    began = time.perf_counter()
    plan = Plan(
        A,
        device,
        rtol=rtol,
        solves=max(1, *np.shape(b)[1:2]) if np.ndim(b) == 2 else 1,
        time_limit=time_limit,
        coordinates=coordinates,
        components=components,
        near_null_space=near_null_space,
        null_space=null_space,
        symmetric=symmetric,
        positive_definite=positive_definite,
        fields=fields,
    )
    return plan._solve(b, None, time.perf_counter() - began)


# SciPy's names of column orderings
ORDERINGS = (None, "NATURAL", "MMD_ATA", "MMD_AT_PLUS_A", "COLAMD")

def spsolve(A: Matrix, b: ArrayLike | SparseMatrix, permc_spec: str | None = None, use_umfpack: bool = True) -> FloatArray:
    """Solves ``A @ x = b`` directly, with the signature of ``scipy.sparse.linalg.spsolve``.

    A symmetric matrix with a positive diagonal is factorized by Cholesky's method. Any other symmetric matrix, and one that turns
    out not to be positive definite, is factorized by LDLᵀ, and an unsymmetric matrix by LU, both with pivoting. Each solution is
    refined iteratively.

    Parameters
    ----------
    A : sparse matrix or array of SciPy
    b : array or sparse matrix of shape (n,) or (n, k)
    permc_spec, use_umfpack
        Accepted for compatibility with SciPy, and ignored: krysp chooses the ordering.

    Returns
    -------
    array of shape (n,), or (n, k) if `b` has several columns
        In single precision if both `A` and `b` are, otherwise in double precision.

    Raises
    ------
    KryspError
        If the matrix is singular to working precision, if the factors do not fit into memory, if the residual is as large as `b`, so
        that the solution is no better than zero, or if the normwise backward error ``norm(b - A @ x) / (norm(A) * norm(x) + norm(b))``, in
        the maximum norm, is above 1e-10 (1e-5 in single precision).

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> krysp.spsolve(sp.csr_array([[2.0, 1.0], [1.0, 3.0]]), np.array([3.0, 4.0]))
    array([1., 1.])
    """
    if permc_spec not in ORDERINGS:
        raise ValueError(f"permc_spec must be one of {', '.join(map(repr, ORDERINGS))}; got {permc_spec!r}")
    if _gpu.is_on_gpu(b):
        x: FloatArray = _gpu.like(b, spsolve(A, _gpu.to_host(b), permc_spec))
        return x
    matrix = _input.sparse(A)
    rows, cols = matrix.shape
    if rows != cols:
        raise ValueError(f"the matrix must be square; got {rows} x {cols}")
    given: Any = b
    rhs = given.toarray() if scipy.sparse.issparse(b) else np.asarray(b)
    single = matrix.dtype == _input.SINGLE and rhs.dtype == _input.SINGLE
    dtype = _input.SINGLE if single else _input.DOUBLE
    _input.real(matrix.dtype, "the matrix")
    return Factors(matrix.astype(dtype, copy=False), "direct")._solve(rhs, "b")
