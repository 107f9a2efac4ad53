"""Time of `krysp.solve` for Poisson's equation on a cube: the first call of a process and the median of 15 later ones, on the CPU
and on the GPU. `python benches/gpu_calls.py` prints CSV. Each time is measured in a separate process."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

import krysp
import numpy as np
import scipy.sparse as sp

SIDES = (10, 27, 58, 128)
CALLS = 15


def poisson(side: int) -> sp.csr_array:
    """Poisson's equation on a cube, 7 entries a row."""
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(side, side))
    return sp.kronsum(sp.kronsum(line, line), line, format="csr")


def measure(device: str, side: int) -> None:
    a = poisson(side)
    b = np.ones(a.shape[0])
    seconds = []
    for _ in range(1 + CALLS):
        started = time.perf_counter()
        result = krysp.solve(a, b, device=device)
        seconds.append(time.perf_counter() - started)
        if result.info != 0:
            raise SystemExit(f"no solution:\n{result.report}")
    print(json.dumps([seconds[0], statistics.median(seconds[1:])]))


def main() -> None:
    print("unknowns,CPU first call ms,CPU later calls ms,GPU first call ms,GPU later calls ms")
    for side in SIDES:
        row = []
        for device in ("cpu", "cuda:0"):
            done = subprocess.run(
                [sys.executable, __file__, device, str(side)], check=True, stdout=subprocess.PIPE, text=True
            )
            row += [f"{1e3 * seconds:.1f}" for seconds in json.loads(done.stdout)]
        print(f"{side**3},{','.join(row)}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measure(sys.argv[1], int(sys.argv[2]))
    else:
        print(krysp.devices())
        main()
