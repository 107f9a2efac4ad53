"""What examples/mpi_poisson.rs solves, by PETSc: the 7-point stencil on a cube, its rows shared by ranks of MPI, `b` of ones, the
true residual 1e-8 of `b`. Needs petsc4py, NumPy and SciPy. (Debian: python3-petsc4py-real, with its folder on PYTHONPATH.)

    OMP_NUM_THREADS=1 mpirun --bind-to core -n 2 python3 benches/petsc_poisson.py SIDE
    RAYON_NUM_THREADS=1 mpirun --bind-to core -n 2 target/release/examples/mpi_poisson SIDE
"""

import sys
import time

import numpy as np
import petsc4py
import scipy.sparse as sp

petsc4py.init(["petsc_poisson"])
from petsc4py import PETSc

# method, preconditioner, and what else it is told
SOLVERS = [
    ("cg", "jacobi", {}),
    ("pipecg", "jacobi", {}),
    ("cg", "bjacobi", {"sub_pc_type": "icc"}),
    ("cg", "gamg", {}),
    ("cg", "hypre", {}),
    # what suits a Laplacian in space, by the manual of hypre
    (
        "cg",
        "hypre",
        {
            "pc_hypre_boomeramg_strong_threshold": 0.5,
            "pc_hypre_boomeramg_coarsen_type": "HMIS",
            "pc_hypre_boomeramg_interp_type": "ext+i",
            "pc_hypre_boomeramg_P_max": 4,
            "pc_hypre_boomeramg_agg_nl": 1,
        },
    ),
]


def assemble(side, comm):
    """This rank's rows of the stencil."""
    n = side**3
    first, end = (n * rank // comm.size for rank in (comm.rank, comm.rank + 1))
    node = np.arange(first, end, dtype=np.int64)
    entries = [(node, node, np.full(len(node), 6.0))]
    for stride in (1, side, side * side):
        place = node // stride % side
        for keep, step in ((place > 0, -stride), (place + 1 < side, stride)):
            entries.append((node[keep], node[keep] + step, np.full(keep.sum(), -1.0)))
    rows, columns, values = (np.concatenate(part) for part in zip(*entries))
    own = sp.csr_matrix((values, (rows - first, columns)), shape=(end - first, n))
    own.sort_indices()
    size = ((end - first, n), (end - first, n))
    arrays = (own.indptr.astype("i4"), own.indices.astype("i4"), own.data)
    a = PETSc.Mat().createAIJ(size=size, csr=arrays, comm=comm)
    a.setOption(PETSc.Mat.Option.SPD, True)
    return a


def main():
    comm = PETSc.COMM_WORLD
    a = assemble(int(sys.argv[1]) if len(sys.argv) > 1 else 64, comm)
    x, b = a.createVecs()
    b.set(1.0)
    options = PETSc.Options()
    for method, preconditioner, told in SOLVERS:
        for name, value in told.items():
            options[name] = value
        ksp = PETSc.KSP().create(comm)
        ksp.setOperators(a)
        ksp.setType(method)
        ksp.getPC().setType(preconditioner)
        ksp.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
        ksp.setTolerances(rtol=1e-8, max_it=10000)
        ksp.setFromOptions()
        comm.barrier()
        started = time.perf_counter()
        ksp.setUp()
        ksp.getPC().setUpOnBlocks()
        comm.barrier()
        setup = time.perf_counter() - started
        # the second solve counts, as in mpi_poisson
        for _ in range(2):
            x.set(0.0)
            comm.barrier()
            started = time.perf_counter()
            ksp.solve(b, x)
            seconds = time.perf_counter() - started
        residual = b.duplicate()
        a.mult(x, residual)
        residual.aypx(-1.0, b)
        told_of = "".join(f" {name}={value}" for name, value in told.items())
        PETSc.Sys.Print(
            f"PETSc {method}, {preconditioner}{told_of}: {ksp.getIterationNumber()} iterations in {seconds:.3f} s,"
            f" setup {setup:.3f} s, residual {residual.norm() / b.norm():.1e}"
        )
        for name in told:
            options.delValue(name)


main()
