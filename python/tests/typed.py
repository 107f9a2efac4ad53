"""Code that type checkers must accept. This file is never run."""

from typing import Any

import krysp
import numpy as np
import scipy.sparse as sp

A = sp.csr_array([[2.0, 1.0], [1.0, 3.0]])
b = np.ones(2)

result: krysp.Result = krysp.cg(A, b, M=krysp.jacobi(A), rtol=1e-8, callback=lambda x: None)
x, info = result
iterations: int = result.report.iterations
history: np.ndarray[Any, Any] = result.report.history
advice: str | None = krysp.gmres(A, b, restart=10, callback_type="x").report.advice
operator = krysp.Operator(A, device="cpu", symmetric=True, reorder=True)
factors: krysp.Preconditioner = krysp.ilut(A, drop_tolerance=1e-4, fill=10.0)
operator.refresh(2.0 * A.data)
plan: krysp.Plan = krysp.Plan(A, rtol=1e-6, solves=10, time_limit=1.0)
declared: krysp.Plan = krysp.Plan(A, coordinates=b.reshape(-1, 2), null_space="constant", symmetric=True, fields=[0, 1])
attempts: list[str] = plan.solve(b).report.attempts
names: list[str] = krysp.devices()
direct: np.ndarray[Any, np.dtype[np.float32]] | np.ndarray[Any, np.dtype[np.float64]] = krysp.spsolve(A, b)
function: krysp.Result = krysp.cg(lambda x: A @ x, b, M=operator, x0="Mb")
setup: float = result.report.setup


class DuckTyped:
    """A class with the attributes of SciPy's `LinearOperator`."""

    shape = (2, 2)
    dtype = np.dtype(float)

    def matvec(self, x: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
        return x


own: krysp.Result = krysp.cg(DuckTyped(), b, M=DuckTyped())
krysp.cg(3.0, b)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
krysp.amg("A")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
