"""One call that solves, and plans for many."""

from __future__ import annotations

import html
import os
import time
from typing import Any, NoReturn

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike

from . import _gpu, _input, _known, _krysp
from ._operator import place
from ._preconditioners import Preconditioner
from ._solvers import Result
from ._types import FloatArray, Matrix, SparseMatrix


class Plan:
    """What the library plans for a matrix, and the solver that it builds: format, method and preconditioner.

    Printed, it says what was seen of the matrix, what will be tried, in which order, and why.

    Parameters
    ----------
    A : sparse matrix or array of SciPy
    device : str
        ``"cpu"``, ``"cuda:0"`` for the first GPU, or ``"auto"`` for the one where the solves are likely to end first. That takes
        into account what this process has yet to do for a GPU: create its context, compile kernels, copy the matrix.
    rtol : float, optional
        Solves end when ``norm(b - A @ x) <= rtol * norm(b)``. If not given, 1e-8; in single precision 3.5e-4.
    solves : int, optional
        How many solves there will be. If not given, what takes long to build is built when the work done has earned it.
    new_values : bool
        Whether the values will change, by `refresh`.
    maxiter : int, optional
        Iterations of a solve at most, over all that is tried.
    time_limit : float, optional
        Seconds of a solve at most.
    coordinates : array of shape (nodes, 2) or (nodes, 3), optional
        The unknowns are displacements of nodes at these points, 2 or 3 consecutive ones for each node: elasticity. Multigrid uses
        rigid body modes then, which takes fewer iterations. With `components`, one row for each unknown.
    components : array of shape (n,), optional
        The direction in which each unknown moves: 0 for x, 1 for y, 2 for z. Where nodes differ in their unknowns, because
        boundary conditions have removed some, or where those of a node are not consecutive.
    near_null_space : array of shape (n,) or (n, k), optional
        Vectors that the matrix maps to nearly nothing but for boundary conditions, as columns.
    null_space : "constant", or array of shape (n,) or (n, k), optional
        Vectors that a singular symmetric matrix maps to zero, as columns. Their components are removed from `b` and from the
        solution.
    symmetric, positive_definite : bool, optional
        What the matrix is, instead of what is found out.
    fields : array of shape (n,), optional
        The field of each unknown of a saddle point system: 0 for velocities, 1 for pressures.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(40, 40))
    >>> A = sp.kronsum(line, line, format="csr")
    >>> plan = krysp.Plan(A, device="cpu", new_values=True)
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
        new_values: bool = False,
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
        self._make(A, device, rtol, solves, new_values, maxiter, time_limit, known, None)

    def _make(
        self,
        A: Matrix,
        device: str,
        rtol: float | None,
        solves: int | None,
        new_values: bool,
        maxiter: int | None,
        time_limit: float | None,
        known: dict[str, Any],
        saved: str | None,
    ) -> None:
        layout, shape, first, second, data = _input.arrays(A)
        self._given = _input.format_of(A)
        self.dtype = _input.real(data.dtype, "the matrix")
        self.shape = shape
        # a saved plan is for one kind of device; a new one decides for itself
        where = "auto" if str(device) == "auto" and saved is None else place(device)
        values = _input.values(data, self.dtype)
        self._core = _krysp.Plan(
            layout,
            shape,
            first,
            second,
            values,
            where,
            rtol,
            solves,
            new_values,
            maxiter,
            time_limit,
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
        """What `save` wrote: the first solve begins without planning, on a CPU without building either.

        Parameters
        ----------
        path : str or path
        A : sparse matrix or array of SciPy
            With entries in the same places as when the plan was saved. Other values are taken as by `refresh`.
        device : str
            The same kind of device as when the plan was saved: ``"cpu"``, ``"cuda:0"``, or ``"auto"`` for a GPU if there is one.
        rtol, maxiter, time_limit
            As for a new plan. What was known of the system, coordinates for example, is in the file.

        Raises
        ------
        KryspError
            If the file is damaged, of another version or kind of processor, or of another matrix; the message says which.

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
        """Saves what was decided and built, for `load`. Best after a solve, which builds what suits.

        Parameters
        ----------
        path : str or path
        """
        self._core.save(os.fspath(path))

    def solve(self, b: ArrayLike, x0: ArrayLike | None = None) -> Result:
        """Solves ``A @ x = b``.

        Parameters
        ----------
        b : array of shape (n,) or (n, 1)
        x0 : array, optional
            The first guess; zero if not given.

        Returns
        -------
        Result
            Unpacks as ``x, info``, and has ``.report``, whose ``attempts`` are what was tried.
        """
        return self._solve(b, x0, 0.0)

    def _solve(self, b: ArrayLike, x0: ArrayLike | None, planned: float) -> Result:
        """As `solve`; the report counts seconds of planning as part of the setup."""
        n = self.shape[0]
        if _gpu.is_on_gpu(b):
            host = self._solve(_gpu.to_host(b), x0 if x0 is None else _gpu.to_host(x0), planned)
            return Result(_gpu.like(b, host.x), host.info, host.report)
        guess = None if x0 is None else _input.vector(x0, n, self.dtype, "x0")
        return Result(*self._core.solve(_input.vector(b, n, self.dtype, "b"), guess, planned))

    def refresh(self, values: ArrayLike | Matrix) -> None:
        """Takes new values for the same pattern; what was built stays if it can take them.

        Parameters
        ----------
        values : array, or sparse matrix or array of SciPy
            A matrix of the same pattern, in any format and with its indices in any order: the pattern is checked, so that no value
            can go astray. Or the values alone, in the order that ``A.data`` had when ``A`` was given, if that was CSR, CSC or
            COO. SciPy may sort indices in place and `data` with them: give the matrix where that can happen.

        Raises
        ------
        ValueError
            If the pattern differs (the message names the first row), or a value is infinite, NaN or complex. The old values stay.
        """
        _input.refresh(self._core, values, self.dtype, self._given)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a plan does not pickle: `plan.save(path)` writes it, and `krysp.Plan.load(path, A)` reads it in another process"
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
    """Solves ``A @ x = b`` with what suits the matrix: the library finds out what it is like, tries, and says how it went.

    For more than one right-hand side make a `Plan`.

    Parameters
    ----------
    A : sparse matrix or array of SciPy
    b : array of shape (n,) or (n, 1)
    rtol : float, optional
        The solve ends when ``norm(b - A @ x) <= rtol * norm(b)``. If not given, 1e-8; in single precision 3.5e-4.
    device : str
        ``"cpu"``, ``"cuda:0"``, or ``"auto"`` for the one where the call is likely to end first.
    time_limit : float, optional
        Seconds at most.
    coordinates, components, near_null_space, null_space, symmetric, positive_definite, fields
        What is known of the system, as for a `Plan`.

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
        solves=1,
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


# names of SciPy's column orderings
ORDERINGS = (None, "NATURAL", "MMD_ATA", "MMD_AT_PLUS_A", "COLAMD")

# the largest backward errors that `spsolve` returns
LARGEST_DOUBLE, LARGEST_SINGLE = 1e-10, 1e-5

# refinements at most: each gains several digits, or none
REFINEMENTS = 5


def spsolve(A: Matrix, b: ArrayLike | SparseMatrix, permc_spec: str | None = None, use_umfpack: bool = True) -> FloatArray:
    """Solves ``A @ x = b`` directly, called as ``scipy.sparse.linalg.spsolve``.

    A symmetric matrix with a positive diagonal is factorized by Cholesky's method, any other, or one that is not positive
    definite, by LU with pivoting. Iterative refinement follows.

    Parameters
    ----------
    A : sparse matrix or array of SciPy
    b : array or sparse matrix of shape (n,) or (n, 1)
    permc_spec, use_umfpack
        Accepted as SciPy does, without effect: the ordering is krysp's own.

    Returns
    -------
    array of shape (n,)
        In single precision if `A` and `b` are, else in double.

    Raises
    ------
    KryspError
        If the matrix is singular, if the factors do not fit into memory, or if the normwise backward error
        ``norm(b - A @ x) / (norm(A) * norm(x) + norm(b))``, in the maximum norm, is above 1e-10 (1e-5 in single precision).

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> krysp.spsolve(sp.csr_array([[2.0, 1.0], [1.0, 3.0]]), np.array([3.0, 4.0]))
    array([1., 1.])
    """
    if permc_spec not in ORDERINGS:
        raise ValueError(f"permc_spec is {permc_spec!r}: one of {', '.join(map(repr, ORDERINGS))} is needed")
    if _gpu.is_on_gpu(b):
        x: FloatArray = _gpu.like(b, spsolve(A, _gpu.to_host(b), permc_spec))
        return x
    matrix = _input.sparse(A)
    rows, cols = matrix.shape
    if rows != cols:
        raise ValueError(f"the matrix is {rows} x {cols}, a square one is needed")
    given: Any = b
    rhs = given.toarray() if scipy.sparse.issparse(b) else np.asarray(b)
    single = matrix.dtype == _input.SINGLE and rhs.dtype == _input.SINGLE
    dtype, largest = (_input.SINGLE, LARGEST_SINGLE) if single else (_input.DOUBLE, LARGEST_DOUBLE)
    _input.real(matrix.dtype, "the matrix")
    rhs = _input.vector(rhs, rows, dtype, "b")
    if rows == 0:
        return rhs.copy()
    matrix = matrix.tocsr().astype(dtype, copy=False)
    factors = Preconditioner("direct", matrix)._core
    size = float(abs(matrix).sum(axis=1).max())

    def residual(x: FloatArray) -> tuple[FloatArray, float]:
        r = rhs - matrix @ x
        norm = float(np.abs(r).max())
        scale = size * float(np.abs(x).max()) + float(np.abs(rhs).max())
        return r, norm / scale if scale != 0.0 else norm

    x = factors.apply(rhs)
    r, error = residual(x)
    for _ in range(REFINEMENTS):
        if not error > np.finfo(dtype).eps:
            break
        better = x + factors.apply(r)
        r, improved = residual(better)
        if not improved < error:
            break
        x, error = better, improved
    if not error <= largest:
        raise _krysp.KryspError(
            f"the solution has a backward error of {error:.1e}, more than {largest:.0e}, as of a matrix that is nearly "
            "singular: try `krysp.solve(A, b)`, whose report says what it finds"
        )
    return x
