"""Times cuSPARSE's products of a sparse matrix with several vectors, through CuPy.

    cargo bench --bench many -- --gpu --write FOLDER
    python3 benches/cusparse_many.py FOLDER

For each matrix in the folder: the time of a product with one vector, and the time per vector for 2, 4, 8 and 16, stored column by
column and row by row, by the clock of the GPU. The matrix is in CSR, as CuPy multiplies it.
"""

import sys
from pathlib import Path

import cupy
import cupyx.scipy.sparse
import numpy
import scipy.sparse


def milliseconds(work):
    """The median of 21 times, each the mean of three runs, after two runs that are not timed."""
    for _ in range(2):
        work()
    times = []
    for _ in range(21):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        for _ in range(3):
            work()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begin, end) / 3)
    return float(numpy.median(times))


for path in sorted(Path(sys.argv[1]).glob("*.npz")):
    a = cupyx.scipy.sparse.csr_matrix(scipy.sparse.load_npz(path).tocsr())
    x = cupy.random.random(a.shape[1])
    print(f"{path.stem}: one vector {milliseconds(lambda: a @ x):.4f} ms")
    for count in (2, 4, 8, 16):
        columns = cupy.asfortranarray(cupy.random.random((a.shape[1], count)))
        rows = cupy.ascontiguousarray(columns)
        by_column, by_row = (milliseconds(lambda x=x: a @ x) / count for x in (columns, rows))
        print(f"  {count:2} vectors: {by_column:.4f} ms each by columns, {by_row:.4f} by rows")
    del a
    cupy.get_default_memory_pool().free_all_blocks()
