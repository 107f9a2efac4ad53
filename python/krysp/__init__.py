"""Krylov solvers on sparse formats that run at the speed of memory.

>>> import numpy as np, scipy.sparse as sp, krysp
>>> A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(1000, 1000), format="csr")
>>> x, info = krysp.cg(A, np.ones(1000), rtol=1e-10)
>>> info
0

The functions have the signatures of those in `scipy.sparse.linalg`. They run on all cores and release the GIL, and `info` is 0
only if the recomputed residual meets the tolerance. Convert a matrix that is used for more than one solve to an `Operator` first:
it stores the matrix in the format that suits it, in the memory of a GPU if there is one.
"""

from ._krysp import KryspError, Report, __version__, devices
from ._operator import Operator
from ._plan import Plan, solve, spsolve
from ._plot import spy
from ._preconditioners import (
    Preconditioner,
    amg,
    cholesky,
    fsai,
    ic0,
    ilu0,
    ilut,
    jacobi,
    lu,
    rigid_motions,
    saddle_point,
    spai,
    two_level,
)
from ._solvers import Result, bicgstab, cg, fcg, fgmres, gmres, idr, minres

__all__ = [
    "KryspError",
    "Operator",
    "Plan",
    "Preconditioner",
    "Report",
    "Result",
    "__version__",
    "amg",
    "bicgstab",
    "cg",
    "cholesky",
    "devices",
    "fcg",
    "fgmres",
    "fsai",
    "gmres",
    "ic0",
    "idr",
    "ilu0",
    "ilut",
    "jacobi",
    "lu",
    "minres",
    "rigid_motions",
    "saddle_point",
    "solve",
    "spai",
    "spsolve",
    "spy",
    "two_level",
]
