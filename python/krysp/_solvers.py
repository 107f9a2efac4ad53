"""The Krylov methods, with the signatures of `scipy.sparse.linalg`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from . import _gpu, _input
from ._input import DOUBLE, SINGLE
from ._krysp import solve as _solve
from ._krysp import solve_many as _solve_many
from ._operator import Operator
from ._preconditioners import Preconditioner
from ._result import Result, one_by_one
from ._types import FloatArray, Linear

Callback = Callable[[Any], object]


def cg(
    A: Linear,
    b: ArrayLike,
    x0: ArrayLike | str | None = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Linear | None = None,
    callback: Callback | None = None,
    block: bool = False,
) -> Result:
    """Conjugate gradients, for symmetric positive definite matrices.

    Parameters
    ----------
    A : sparse matrix or array of SciPy, Operator, LinearOperator of SciPy, or function
        The values of a CSR matrix are read without a copy, the indices are copied and checked: do not change the values during the
        solve. If many more iterations are expected, the matrix is copied to a faster format and reordered.
    b : array of shape (n,) or (n, k)
        Several columns are solved together, each with the same iterations as alone. On a CPU, except with `gmres` and `fgmres`,
        each iteration has one product of `A` with all columns if `A` and `M` take at least as much memory as eight vectors.
    x0 : array, optional
        The initial guess, of the shape of `b`; ``"Mb"`` means ``M @ b``. Default: zero.
    rtol, atol : float
        The solve ends when ``norm(b - A @ x) <= max(rtol * norm(b), atol)``.
    maxiter : int, optional
        Maximum number of iterations. Default: ``10 n``.
    M : Preconditioner, sparse matrix, LinearOperator or function, optional
        Applies an approximate inverse of `A`.
    callback : function, optional
        Called as ``callback(x)`` after each iteration. With a callback, or with `x0`, columns are solved one after the other.
    block : bool, optional
        Up to 16 columns of `b` share one search space (block conjugate gradients): fewer iterations, with more work on vectors in
        each. Without effect on a GPU, and where columns are solved one after the other.

    Returns
    -------
    Result
        Unpacks as ``x, info``, and has ``.report``.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> A = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(100, 100), format="csr")
    >>> x, info = krysp.cg(A, np.ones(100), rtol=1e-10, M=krysp.jacobi(A))
    >>> info, bool(np.isclose(x[49], 1275.0))
    (0, True)
    """
    return _run("cg", A, b, x0, rtol, atol, maxiter, M, callback, block=block)


def minres(
    A: Linear,
    b: ArrayLike,
    x0: ArrayLike | str | None = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Linear | None = None,
    callback: Callback | None = None,
) -> Result:
    """MINRES, for symmetric matrices, which may be indefinite.

    Parameters are those of `cg`. `M` must be symmetric positive definite.

    Returns
    -------
    Result
        Unpacks as ``x, info``, and has ``.report``.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> A = sp.csr_array([[1.0, 2.0], [2.0, -1.0]])
    >>> krysp.minres(A, np.array([5.0, 0.0])).x
    array([1., 2.])
    """
    return _run("minres", A, b, x0, rtol, atol, maxiter, M, callback)


def bicgstab(
    A: Linear,
    b: ArrayLike,
    x0: ArrayLike | str | None = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Linear | None = None,
    callback: Callback | None = None,
) -> Result:
    """Stabilized bi-conjugate gradients, for any matrix, with a fixed number of vectors.

    Parameters are those of `cg`.

    Returns
    -------
    Result
        Unpacks as ``x, info``, and has ``.report``.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> A = sp.csr_array([[4.0, 1.0], [2.0, 3.0]])
    >>> krysp.bicgstab(A, A @ np.array([1.0, 2.0]), rtol=1e-10).info
    0
    """
    return _run("bicgstab", A, b, x0, rtol, atol, maxiter, M, callback)


def fcg(
    A: Linear,
    b: ArrayLike,
    x0: ArrayLike | str | None = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Linear | None = None,
    callback: Callback | None = None,
) -> Result:
    """Flexible conjugate gradients: like `cg`, but the preconditioner may change from iteration to iteration.

    Parameters are those of `cg`.

    Returns
    -------
    Result
        Unpacks as ``x, info``, and has ``.report``.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> A = sp.csr_array([[4.0, 1.0], [1.0, 3.0]])
    >>> inner = lambda r: krysp.cg(A, r, rtol=0.1).x
    >>> krysp.fcg(A, A @ np.array([1.0, 2.0]), rtol=1e-10, M=inner).info
    0
    """
    return _run("fcg", A, b, x0, rtol, atol, maxiter, M, callback)


def idr(
    A: Linear,
    b: ArrayLike,
    x0: ArrayLike | str | None = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Linear | None = None,
    callback: Callback | None = None,
) -> Result:
    """Induced dimension reduction, IDR(4), for any matrix, with a fixed number of vectors. More robust than `bicgstab`.

    Parameters are those of `cg`.

    Returns
    -------
    Result
        Unpacks as ``x, info``, and has ``.report``.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> A = sp.csr_array([[4.0, 1.0], [2.0, 3.0]])
    >>> krysp.idr(A, A @ np.array([1.0, 2.0]), rtol=1e-10).info
    0
    """
    return _run("idr", A, b, x0, rtol, atol, maxiter, M, callback)


def gmres(
    A: Linear,
    b: ArrayLike,
    x0: ArrayLike | str | None = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    restart: int | None = None,
    maxiter: int | None = None,
    M: Linear | None = None,
    callback: Callback | None = None,
    callback_type: str | None = None,
    block: bool = False,
) -> Result:
    """GMRES with restarts, for any matrix.

    Parameters are those of `cg`, with these differences:

    Parameters
    ----------
    restart : int, optional
        Number of iterations per cycle. Default: 20.
    maxiter : int, optional
        Maximum number of cycles; with ``callback_type="legacy"``, of iterations. Default: ``10 n``.
    M
        Right preconditioner: residuals are those of the original system.
    callback_type : {"x", "pr_norm", "legacy"}, optional
        Argument of the callback: with ``"x"`` the iterate, after each cycle; otherwise the relative residual, after each
        iteration. Default: ``"legacy"`` if there is a callback, with a `DeprecationWarning`, as in SciPy.
    block : bool, optional
        As for `cg`, by block GMRES, which stores up to ``restart + 4`` vectors for each column.

    Returns
    -------
    Result
        Unpacks as ``x, info``, and has ``.report``. Without convergence, `info` counts cycles or iterations as `maxiter` does.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> A = sp.csr_array([[4.0, 1.0], [2.0, 3.0]])
    >>> krysp.gmres(A, A @ np.array([1.0, 2.0]), rtol=1e-10).x
    array([1., 2.])
    """
    return _cycles("gmres", A, b, x0, rtol, atol, restart, maxiter, M, callback, callback_type, block)


def fgmres(
    A: Linear,
    b: ArrayLike,
    x0: ArrayLike | str | None = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    restart: int | None = None,
    maxiter: int | None = None,
    M: Linear | None = None,
    callback: Callback | None = None,
    callback_type: str | None = None,
) -> Result:
    """Flexible GMRES with restarts: like `gmres`, but the preconditioner may change from iteration to iteration.

    Parameters are those of `gmres`.

    Returns
    -------
    Result
        Unpacks as ``x, info``, and has ``.report``.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> A = sp.csr_array([[4.0, 1.0], [2.0, 3.0]])
    >>> inner = lambda r: krysp.bicgstab(A, r, rtol=0.1).x
    >>> krysp.fgmres(A, A @ np.array([1.0, 2.0]), rtol=1e-10, M=inner).info
    0
    """
    return _cycles("fgmres", A, b, x0, rtol, atol, restart, maxiter, M, callback, callback_type)


def _cycles(
    method: str,
    A: Any,
    b: ArrayLike,
    x0: Any,
    rtol: float,
    atol: float,
    restart: int | None,
    maxiter: int | None,
    M: Any,
    callback: Callback | None,
    callback_type: str | None,
    block: bool = False,
) -> Result:
    if callback is not None and callback_type is None:
        message = (
            f"krysp.{method} called without specifying `callback_type`: the callback gets residuals, and `maxiter` counts "
            'iterations, as in old versions of SciPy; pass "x", "pr_norm" or "legacy"'
        )
        warnings.warn(message, category=DeprecationWarning, stacklevel=3)
        callback_type = "legacy"
    if callback_type not in (None, "x", "pr_norm", "legacy"):
        raise ValueError(f'callback_type must be "x", "pr_norm" or "legacy"; got {callback_type!r}')
    n = (*np.shape(b), 1)[0]
    restart = max(1, min(20 if restart is None else _input.count(restart, "restart", 1), n))
    cycles = 10 * n if maxiter is None else _input.count(maxiter, "maxiter")
    legacy = callback_type == "legacy"
    most = cycles if legacy else cycles * restart
    of_iterates = callback_type == "x"
    wrapped = callback
    if callback is not None and not of_iterates:
        wrapped = lambda residual: callback(np.float64(residual))  # noqa: E731
    result = _run(method, A, b, x0, rtol, atol, most, M, wrapped, restart, of_iterates, block)
    if result.info > 0 and not legacy:
        return Result(result.x, -(-result.info // restart), result.report, result.reports)
    return result


def _run(
    method: str,
    A: Any,
    b: ArrayLike,
    x0: Any,
    rtol: float,
    atol: float,
    maxiter: int | None,
    M: Any,
    callback: Callback | None,
    restart: int = 20,
    of_iterates: bool = True,
    block: bool = False,
) -> Result:
    if not (type(rtol) is type(atol) is float and rtol >= 0.0 and atol >= 0.0):
        rtol, atol = _input.not_negative(rtol, "rtol"), _input.not_negative(atol, "atol")
    if type(b) is not np.ndarray:
        if _gpu.is_on_gpu(b):
            return _of_gpu(method, A, b, x0, rtol, atol, maxiter, M, callback, restart, of_iterates)
        b = _input.dense(b, "b")
    rhs: Any = b
    if type(A) is Operator:
        dtype, n, operator = A.dtype, A.shape[0], A._core
        _square(A.shape)
    else:
        dtype, n, operator = _operand(A, rhs, None, "the matrix")
    if _input.has_columns(rhs):
        solve = lambda rhs, x0: _run(method, A, rhs, x0, rtol, atol, maxiter, M, callback, restart, of_iterates)  # noqa: E731
        together = n > 0 and x0 is None and callback is None and not (type(A) is Operator and A.device != "cpu")
        flat = _input.columns(rhs, n, dtype, "b") if together else None
        if flat is not None and not any(_scale(column) for column in flat.reshape(-1, n)):
            preconditioner = None if M is None else _preconditioner(M, n, dtype)
            most = _most(maxiter, n)
            common = (method, operator, flat, n, preconditioner, rtol, atol, most, restart)
            x, ended = _solve_many(*common, bool(block))
            return Result.of_columns(x.reshape(rhs.shape, order="F"), ended)
        return one_by_one(solve, rhs, x0, n, dtype)
    if rhs.dtype is not dtype or rhs.shape != (n,) or not rhs.flags.c_contiguous:
        rhs = _input.vector(rhs, n, dtype, "b")
    preconditioner = None if M is None else _preconditioner(M, n, dtype)
    if isinstance(x0, str):
        if x0 != "Mb":
            raise ValueError(f'x0 must be an array or "Mb"; got {x0!r}')
        x0 = rhs if M is None else M @ rhs if hasattr(M, "shape") else M(rhs)
    guess = None if x0 is None else _input.vector(x0, n, dtype, "x0", may_vanish=True)
    most = _most(maxiter, n)
    scale = _scale(rhs)
    if scale is None:
        return Result(
            *_solve(method, operator, rhs, guess, preconditioner, rtol, atol, most, restart, callback, of_iterates)
        )
    # multiplications by a power of two are exact
    wrapped = callback
    if callback is not None and of_iterates:
        wrapped = lambda x: callback(x / scale)  # noqa: E731
    guess = None if guess is None else guess * scale
    x, info, report = _solve(
        method, operator, rhs * scale, guess, preconditioner, rtol, atol * float(scale), most, restart, wrapped, of_iterates
    )
    return Result(x / scale, info, report._scaled(1.0 / scale))


# squares of norms for which the squares of residuals neither overflow nor underflow
SQUARES = {SINGLE: (1e-20, 1e30), DOUBLE: (1e-240, 1e280)}


def _scale(rhs: Any) -> Any:
    """A power of two by which `rhs` is multiplied for the solve; `None` if squares of its entries are far from overflow and
    underflow, or if it is zero or not finite."""
    least, most = SQUARES[rhs.dtype]
    with np.errstate(over="ignore", under="ignore"):
        if least <= np.dot(rhs, rhs) <= most:
            return None
    largest = float(np.abs(rhs).max()) if len(rhs) else 0.0
    if largest == 0.0 or not np.isfinite(largest):
        return None
    # both the power and its inverse are finite in the element type
    bound = 1000 if rhs.dtype == DOUBLE else 120
    return rhs.dtype.type(2.0 ** min(max(-np.frexp(largest)[1], -bound), bound))


def _most(maxiter: int | None, n: int) -> int:
    """The maximum number of iterations for the argument `maxiter`."""
    return 10 * n if maxiter is None else _input.count(maxiter, "maxiter")


def _of_gpu(
    method: str,
    A: Any,
    b: Any,
    x0: Any,
    rtol: float,
    atol: float,
    maxiter: int | None,
    M: Any,
    callback: Callback | None,
    restart: int,
    of_iterates: bool,
) -> Result:
    """Solves for a right-hand side on a GPU, on the device of the operator. `x` has the type of `b`."""
    if not hasattr(A, "matvec") and not callable(A):
        A = Operator(A, f"cuda:{_gpu.ordinal(b)}")
    wrapped = callback
    if callback is not None and of_iterates:
        wrapped = lambda x: callback(_gpu.like(b, x))  # noqa: E731
    on_host = wrapped is not None or isinstance(x0, str) or _input.has_columns(b)
    if not isinstance(A, Operator) or A.device == "cpu" or on_host:
        guess = x0 if x0 is None or isinstance(x0, str) else _gpu.to_host(x0)
        host = _gpu.to_host(b)
        result = _run(method, A, host, guess, rtol, atol, maxiter, M, wrapped, restart, of_iterates)
        return Result(_gpu.like(b, result.x), result.info, result.report, result.reports)
    n = A.shape[0]
    _square(A.shape)
    preconditioner = None if M is None else _preconditioner(M, n, A.dtype)
    result = Result(
        *_gpu.solve(method, A._core, n, A.dtype, b, x0, preconditioner, rtol, atol, _most(maxiter, n), restart)
    )
    least, most = SQUARES[A.dtype]
    if result.info != 0 and not least <= result.report.rhs_norm**2 <= most:
        # squares overflow or underflow: in host memory, `b` is scaled
        guess = None if x0 is None else _gpu.to_host(x0)
        result = _run(method, A, _gpu.to_host(b), guess, rtol, atol, maxiter, M, None, restart)
        return Result(_gpu.like(b, result.x), result.info, result.report)
    return result


def _square(shape: tuple[int, ...]) -> None:
    if shape[0] != shape[1]:
        raise ValueError(f"the matrix must be square; got {shape[0]} x {shape[1]}")


def _operand(given: Any, rhs: Any, dtype: Any, what: str) -> tuple[Any, int, Any]:
    """Element type, number of rows, and the argument for the compiled module: CSR arrays, or a function."""
    operator, matvec = given, getattr(given, "matvec", None)
    if matvec is None and not callable(given):
        given = _input.sparse(given, what)
        _square(given.shape)
        if dtype is None:
            single = given.dtype == SINGLE and rhs.dtype == SINGLE
            dtype = SINGLE if single else DOUBLE
            _input.real(given.dtype, what)
        return dtype, given.shape[0], _input.rows(given, dtype, what)
    if matvec is not None:
        _square(operator.shape)
        n, apply, own = operator.shape[0], matvec, _input.real(operator.dtype, what)
    else:
        n, apply, own = rhs.shape[0], given, rhs.dtype
    if dtype is None:
        dtype = SINGLE if own == SINGLE and rhs.dtype == SINGLE else DOUBLE

    def function(x: FloatArray) -> FloatArray:
        image = np.asarray(apply(x))
        if image.dtype != dtype:
            _input.real(image.dtype, f"the result of {what}")
        return np.ascontiguousarray(image, dtype=dtype).reshape(-1)

    return dtype, n, function


def _preconditioner(M: Any, n: int, dtype: Any) -> Any:
    if isinstance(M, (Preconditioner, Operator)):
        if M.shape != (n, n):
            raise ValueError(f"the preconditioner must be {n} x {n}, as the matrix is; got {M.shape[0]} x {M.shape[1]}")
        if M.dtype == dtype:
            return M._core
    rows = _operand(M, np.empty((n,), dtype), dtype, "M")
    if rows[1] != n:
        raise ValueError(f"the preconditioner must have {n} rows, as the matrix has; got {rows[1]}")
    return rows[2]
