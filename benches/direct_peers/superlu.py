"""superlu.py FILE.npz COLAMD|MMD RUNS: the line of peer.hpp for SuperLU, with the analysis in the time to factorize."""

import sys
import time

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as linalg

SYMMETRIC = {"permc_spec": "MMD_AT_PLUS_A", "options": {"SymmetricMode": True}, "diag_pivot_thresh": 0.01}
OPTIONS = {"COLAMD": {"permc_spec": "COLAMD"}, "MMD": SYMMETRIC}


def main(path, ordering, runs):
    a = sp.load_npz(path).tocsr()
    b = a @ np.ones(a.shape[0])
    columns = a.tocsc()
    norm, norm_b = abs(a).sum(axis=1).max(), abs(b).max()

    def error(x):
        error = abs(b - a @ x).max() / (norm * abs(x).max() + norm_b)
        return error if np.isfinite(error) else np.inf

    best, spent = (np.inf, np.inf), 0.0
    for run in range(runs):
        if run and spent > 1:
            break
        lu = None
        began = time.perf_counter()
        try:
            lu = linalg.splu(columns, **OPTIONS[ordering])
        except (RuntimeError, MemoryError, ValueError) as why:
            print(f"failed\t{why}")
            sys.exit(1)
        factorize, solve = time.perf_counter() - began, np.inf
        for _ in range(5):
            began = time.perf_counter()
            x = lu.solve(b)
            solve = min(solve, time.perf_counter() - began)
        best = min(best, (factorize, solve), key=sum)
        spent += factorize + 5 * solve
    with np.errstate(all="ignore"):
        errors = [error(x)]
        for _ in range(2):
            x = x + lu.solve(b - a @ x)
            errors.append(error(x))
    size = f"{lu.nnz}\t{lu.nnz * 12 / 2**20:.1f}"
    print(f"0\t{best[0]:.6f}\t{best[1]:.6f}\t{errors[0]:.1e}\t{min(errors):.1e}\t{size}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
