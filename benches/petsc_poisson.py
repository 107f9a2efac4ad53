"""Solves the system of examples/ranks_poisson.rs with PETSc: the 7-point stencil on a cube, with rows distributed over MPI ranks,
`b` of ones, and a true relative residual of 1e-8. Needs petsc4py, NumPy and SciPy. (Debian: python3-petsc4py-real, with its
folder on PYTHONPATH.)

    OMP_NUM_THREADS=1 mpirun --bind-to core -n 2 python3 benches/petsc_poisson.py SIDE

Runs krysp and PETSc in turns, and prints the medians of ROUNDS rounds as CSV, for benches/record/<machine>/mpi.csv:

    cargo build --release --features mpi --example ranks_poisson
    python3 benches/petsc_poisson.py rounds SIDE ROUNDS RANKS
"""

import os
import re
import statistics
import subprocess
import sys
import time


# name, method, preconditioner, and further options
SOLVERS = [
    ("CG and Jacobi", "cg", "jacobi", {}),
    ("pipelined CG and Jacobi", "pipecg", "jacobi", {}),
    ("CG and ICC of each block", "cg", "bjacobi", {"sub_pc_type": "icc"}),
    ("CG and GAMG", "cg", "gamg", {}),
    ("CG and BoomerAMG", "cg", "hypre", {}),
    # recommended by hypre's manual for three-dimensional Laplacians
    (
        "CG and BoomerAMG tuned",
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


def rounds(side, count, ranks):
    """Runs both programs in turns; prints the median of each time."""
    programs = {
        "PETSc": [sys.executable, __file__, side],
        "krysp": ["target/release/examples/ranks_poisson", side],
    }
    patterns = {"PETSc": r"PETSc (.+): (\d+) iterations in (\S+) s, setup (\S+) s", "krysp": OURS}
    start = ["mpirun", "--allow-run-as-root", "--bind-to", "core", "-n", ranks]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
    found = {}
    for _ in range(int(count)):
        for library, program in programs.items():
            ran = subprocess.run(start + program, env=one_thread, stdout=subprocess.PIPE, text=True, check=True)
            for solver, iterations, solve, setup in re.findall(patterns[library], ran.stdout):
                key = (library, solver.replace(", ", " and "), iterations)
                found.setdefault(key, []).append((float(setup), float(solve)))
    print("unknowns,ranks,library,solver,iterations,setup_s,solve_s,together_s")
    for (library, solver, iterations), seconds in found.items():
        setup, solve = (statistics.median(part) for part in zip(*seconds))
        together = statistics.median(sum(both) for both in seconds)
        print(f"{int(side) ** 3},{ranks},{library},{solver},{iterations},{setup:.3f},{solve:.3f},{together:.3f}")


# the line of ranks_poisson about a solve
OURS = r"(.+): converged after (\d+) iterations?, solve (\S+) s.*, setup (\S+) s"


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


def solve():
    """Solves on one rank together with the others; the first rank prints a line for each solver."""
    comm = PETSc.COMM_WORLD
    a = assemble(int(sys.argv[1]) if len(sys.argv) > 1 else 64, comm)
    x, b = a.createVecs()
    b.set(1.0)
    database = PETSc.Options()
    for label, method, preconditioner, options in SOLVERS:
        for name, value in options.items():
            database[name] = value
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
        # the second solve counts, as in ranks_poisson
        for _ in range(2):
            x.set(0.0)
            comm.barrier()
            started = time.perf_counter()
            ksp.solve(b, x)
            seconds = time.perf_counter() - started
        residual = b.duplicate()
        a.mult(x, residual)
        residual.aypx(-1.0, b)
        PETSc.Sys.Print(
            f"PETSc {label}: {ksp.getIterationNumber()} iterations in {seconds:.3f} s,"
            f" setup {setup:.3f} s, residual {residual.norm() / b.norm():.1e}"
        )
        for name in options:
            database.delValue(name)


if sys.argv[1:2] == ["rounds"]:
    rounds(*sys.argv[2:5])
else:
    import numpy as np
    import petsc4py
    import scipy.sparse as sp

    petsc4py.init(["petsc_poisson"])
    from petsc4py import PETSc

    solve()
