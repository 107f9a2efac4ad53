"""Times of conjugate gradients on a GPU, called from Python: krysp and CuPy in turns. `python benches/gpu.py`."""

from __future__ import annotations

import time

import cupy
import krysp
import numpy as np
import scipy.sparse as sp
from cupyx.scipy.sparse import csr_matrix
from cupyx.scipy.sparse.linalg import LinearOperator, cg


def tetrahedra(n: int) -> sp.csr_array:
    """Linear elements on the tetrahedra of an n x n x n grid, 15 entries per row: -Δu + u up to scaling."""
    steps = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1), (1, 0, 1), (1, 1, 1)]
    weights = [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25]
    diagonals, offsets = [], []
    index = np.arange(n**3)
    place = [index // n**2, index // n % n, index % n]
    total = np.full(n**3, 1e-4)
    for step, weight in zip(steps, weights):
        offset = step[0] * n * n + step[1] * n + step[2]
        inside = np.ones(n**3, bool)
        for at, move in zip(place, step):
            if move:
                inside &= at < n - 1
        value = np.where(inside, -weight, 0.0)
        total -= value
        total[offset:] -= value[: n**3 - offset]
        diagonals += [value[: n**3 - offset], value[: n**3 - offset]]
        offsets += [offset, -offset]
    diagonals.append(total)
    offsets.append(0)
    a = sp.diags_array(diagonals, offsets=offsets, shape=(n**3, n**3), format="csr")
    a.eliminate_zeros()
    return a


def compare(name: str, a: sp.csr_array, rounds: int) -> None:
    b = cupy.random.default_rng(1).random(a.shape[0])
    theirs = csr_matrix((cupy.asarray(a.data), cupy.asarray(a.indices), cupy.asarray(a.indptr)), shape=a.shape)
    diagonal = cupy.asarray(a.diagonal())
    m = LinearOperator(a.shape, matvec=lambda r: r / diagonal, dtype=np.float64)
    started = time.perf_counter()
    operator = krysp.Operator(a, "cuda:0", symmetric=True)
    jacobi = krysp.jacobi(operator)
    setup = time.perf_counter() - started
    count = [0]

    def counted(_: object) -> None:
        count[0] += 1

    cg(theirs, b, M=m, rtol=1e-8, callback=counted)
    ours, other = [], []
    for _ in range(rounds):
        cupy.cuda.Device().synchronize()
        started = time.perf_counter()
        x, info = cg(theirs, b, M=m, rtol=1e-8)
        cupy.cuda.Device().synchronize()
        other.append(time.perf_counter() - started)
        started = time.perf_counter()
        result = krysp.cg(operator, b, M=jacobi, rtol=1e-8)
        cupy.cuda.Device().synchronize()
        ours.append(time.perf_counter() - started)
    residual = lambda x: float(cupy.linalg.norm(b - theirs @ x) / cupy.linalg.norm(b))  # noqa: E731
    iterations = result.report.iterations
    print(f"{name}: {a.shape[0]} rows, {a.nnz} entries; {operator.choice.splitlines()[0]}; set up in {setup:.2f} s")
    print(f"  cupy  {1e3 * min(other):10.3f} ms, {count[0]} iterations, {1e6 * min(other) / count[0]:8.1f} us each, residual {residual(x):.1e}")
    print(f"  krysp {1e3 * min(ours):10.3f} ms, {iterations} iterations, {1e6 * min(ours) / iterations:8.1f} us each, residual {residual(result.x):.1e}")
    print(f"  {min(other) / min(ours):.1f} times as fast")


def overhead() -> None:
    operator = krysp.Operator(tetrahedra(8), "cuda:0")
    for kind, b in (("NumPy", np.ones(512)), ("CuPy", cupy.ones(512))):
        beyond = []
        for _ in range(500):
            started = time.perf_counter()
            result = krysp.cg(operator, b)
            beyond.append(time.perf_counter() - started - result.report.time)
        print(f"a call with a vector of {kind}, beyond the solve: {1e6 * sorted(beyond)[250]:.0f} us in the median")


if __name__ == "__main__":
    print(krysp.devices())
    compare("tetrahedra, 27 a side", tetrahedra(27), 10)
    shuffled = tetrahedra(27)
    order = np.random.default_rng(2).permutation(shuffled.shape[0])
    compare("the same, numbered at random", shuffled[order][:, order].tocsr(), 10)
    compare("tetrahedra, 188 a side", tetrahedra(188), 2)
    overhead()
