"""Times of krysp, SciPy and PyAMG for the same systems: `python benches/peers.py [MATRIX ...]`.

Matrices are those of `../shared/matrices/fem`, or of the folder in KRYSP_MATRICES. All contestants run in this process, in turns;
the shortest time of each counts. On a machine with other users, compare ratios. OpenBLAS, which NumPy calls for inner products,
gets one thread: with more, it waits on busy machines.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import krysp
import numpy as np
import scipy.sparse.linalg as scipy_linalg
from scipy.io import mmread
from scipy.sparse import csr_array, diags_array

RTOL = 1e-8
ROUNDS = 3
SYSTEMS = [
    "heat_sink_p1_27k",
    "heat_sink_transient_80k",
    "heat_sink_p1_340k",
    "elast_bracket_p1_59k",
    "convdiff_channel_p1_186k",
]


def folder() -> Path:
    here = Path(__file__).resolve().parents[2]
    return Path(os.environ.get("KRYSP_MATRICES", here.parent / "shared" / "matrices")) / "fem"


def matrix(name: str) -> csr_array:
    read = lambda part: mmread(folder() / f"{part}.mtx.gz", spmatrix=False).tocsr()  # noqa: E731
    if (folder() / f"{name}_M.mtx.gz").exists():
        # a step of implicit Euler
        return (read(f"{name}_M") + 0.05 * read(f"{name}_K")).tocsr()
    return read(name)


def shortest(contestants: dict) -> dict:
    """Seconds and residual of each contestant, the shortest of several rounds."""
    best: dict = {}
    for _ in range(ROUNDS):
        for name, solve in contestants.items():
            started = time.perf_counter()
            residual = solve()
            seconds = time.perf_counter() - started
            if name not in best or seconds < best[name][0]:
                best[name] = (seconds, residual)
    return best


def compare(name: str) -> None:
    a = matrix(name)
    b = mmread(folder() / f"{name}_b.mtx.gz").reshape(-1)
    relative = lambda x: float(np.linalg.norm(b - a @ x) / np.linalg.norm(b))  # noqa: E731
    inverse = diags_array(1.0 / a.diagonal()).tocsr()
    symmetric = bool(abs(a - a.T).max() <= 1e-12 * abs(a).max())
    method = "cg" if symmetric else "bicgstab"
    theirs, ours = getattr(scipy_linalg, method), getattr(krysp, method)
    operator = krysp.Operator(a, "cpu", symmetric=symmetric)
    jacobi = krysp.jacobi(operator)
    near = krysp.Operator(a, "cpu", symmetric=symmetric, reorder=True)
    jacobi_near = krysp.jacobi(near)
    reference = f"scipy {method}, Jacobi"
    contestants = {
        reference: lambda: relative(theirs(a, b, M=inverse, rtol=RTOL)[0]),
        f"krysp.{method}, Jacobi, SciPy's arrays": lambda: relative(ours(a, b, M=krysp.jacobi(a), rtol=RTOL).x),
        f"krysp.{method}, Jacobi, of an Operator": lambda: relative(ours(operator, b, M=jacobi, rtol=RTOL).x),
        f"krysp.{method}, Jacobi, of one reordered": lambda: relative(ours(near, b, M=jacobi_near, rtol=RTOL).x),
        "krysp.solve, with setup": lambda: relative(krysp.solve(a, b, rtol=RTOL, device="cpu").x),
    }
    if symmetric:
        contestants["krysp.cg, amg, with setup"] = lambda: relative(krysp.cg(a, b, M=krysp.amg(a), rtol=RTOL).x)
        add_pyamg(contestants, a, lambda hierarchy: relative(hierarchy.solve(b, tol=RTOL, accel="cg")))
    best = shortest(contestants)
    seconds_of_scipy = best[reference][0]
    print(f"{name}: {a.shape[0]} rows, {a.nnz} entries")
    for contestant, (seconds, residual) in best.items():
        print(f"  {contestant:42} {seconds:8.3f} s  {seconds_of_scipy / seconds:5.1f}x  residual {residual:.1e}", flush=True)


def add_pyamg(contestants: dict, a: csr_array, solve: Callable[[Any], float]) -> None:
    try:
        import pyamg
    except ImportError:
        print("skipped: pyamg is not installed", file=sys.stderr)
        return
    contestants["pyamg, smoothed aggregation, with setup"] = lambda: solve(pyamg.smoothed_aggregation_solver(a))


def overhead() -> None:
    """The overhead of a call: the time of a call less that in its report, for many calls."""
    line = diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(100, 100), format="csr")
    b = np.ones(100)
    for name, operator in (("SciPy's arrays", line), ("an Operator", krysp.Operator(line, "cpu"))):
        beyond = []
        for _ in range(20_000):
            started = time.perf_counter()
            result = krysp.cg(operator, b)
            beyond.append(time.perf_counter() - started - result.report.time)
        beyond.sort()
        low, middle = beyond[0], beyond[len(beyond) // 2]
        print(f"a call with {name} of 100 rows, beyond the solve: {1e6 * low:.1f} us at best, {1e6 * middle:.1f} in the median")


if __name__ == "__main__":
    overhead()
    for system in sys.argv[1:] or SYSTEMS:
        compare(system)
