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

import importlib.util
import os
from typing import TYPE_CHECKING, Any

from . import _krysp
from ._krysp import KryspError, Report, __version__, devices

if TYPE_CHECKING:
    from ._factors import Factors, factorized, splu
    from ._operator import Operator
    from ._plan import Plan, solve, spsolve
    from ._plot import spy
    from ._preconditioners import (
        Preconditioner,
        amg,
        cholesky,
        cudss,
        fsai,
        ic0,
        ilu0,
        ilut,
        jacobi,
        ldl,
        lu,
        rigid_body_modes,
        saddle_point,
        spai,
        two_level,
    )
    from ._result import Result
    from ._solvers import bicgstab, cg, fcg, fgmres, gmres, idr, minres

__all__ = [
    "Factors",
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
    "cudss",
    "devices",
    "factorized",
    "fcg",
    "fgmres",
    "fsai",
    "gmres",
    "ic0",
    "idr",
    "ilu0",
    "ilut",
    "jacobi",
    "ldl",
    "lu",
    "minres",
    "rigid_body_modes",
    "saddle_point",
    "solve",
    "spai",
    "splu",
    "spsolve",
    "spy",
    "two_level",
]

# modules whose public names `__getattr__` imports at their first use
_MODULES = ("_factors", "_operator", "_plan", "_plot", "_preconditioners", "_solvers")


def __getattr__(name: str) -> Any:
    """Imports the rest of the package, and SciPy with it, at the first use of a public name: `import krysp` takes milliseconds."""
    if name in __all__:
        for module in _MODULES:
            public = vars(importlib.import_module(f".{module}", __name__))
            if name in public:
                return globals().setdefault(name, public[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _look_for_nvrtc() -> None:
    """Adds the library folders of NVIDIA's wheels, which the dynamic linker does not search, to the search path for NVRTC (CUDA's
    run-time compiler) and cuDSS: `pip install krysp[cuda]` and `pip install nvidia-cudss-cu13` install them there."""
    try:
        nvidia = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return
    for root in (nvidia and nvidia.submodule_search_locations) or ():
        if os.path.isdir(root):
            for part in sorted(os.listdir(root)):
                _krysp.look_for_compiler_in(os.path.abspath(os.path.join(root, part, "lib")))


# a build without the feature `cuda` has no such function
if hasattr(_krysp, "look_for_compiler_in"):
    _look_for_nvrtc()
