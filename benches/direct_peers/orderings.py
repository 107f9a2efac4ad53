"""Work of Cholesky factorizations in krysp's orderings, in METIS's and in AMD's.

    python3 benches/direct_peers/orderings.py [FILE.mtx.gz ...]

Without a file: the square real matrices of $KRYSP_MATRICES (default ../shared/matrices) with 1,000 to 400,000 rows, and the
three-dimensional problems of problems.py. Needs SciPy, a C compiler, libmetis.so.5 and libamd.so.2 (Debian: libmetis5, libamd2).
`cargo bench --bench direct -- --orders FOLDER` writes krysp's orderings. All orderings are of the pattern of A + Aᵀ, and one
program counts the entries of each column of the factor. Work is the sum of the squares of these numbers. Columns of the table:

    chosen      work in the order that krysp's factorizations take: minimum degree or nested dissection
    degree, dissection, METIS, AMD      work over that
    ratio       work in the chosen order over the lesser work of METIS and AMD
    seconds     of both orderings of krysp, of METIS and of AMD, all on one thread
"""

import ctypes
import gzip
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import scipy.io
import scipy.sparse as sp
from problems import PROBLEMS

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ORDERS = ["Degree", "Dissection", "Chosen"]

COUNTER = """
#include <stdlib.h>
/* Sum and sum of squares of the numbers of entries of the columns of the factor: row k has an entry in each column of its
   subtree of the elimination tree (Liu 1986). */
void count(int n, const int *starts, const int *others, const int *order, double *sums) {
    int *place = malloc(4L * n), *parent = malloc(4L * n), *seen = malloc(4L * n), *length = malloc(4L * n);
    for (int k = 0; k < n; k++) { place[order[k]] = k; parent[k] = seen[k] = -1; length[k] = 1; }
    for (int k = 0; k < n; k++) {
        seen[k] = k;
        for (int e = starts[order[k]]; e < starts[order[k] + 1]; e++)
            for (int i = place[others[e]]; i < k && seen[i] != k; i = parent[i]) {
                if (parent[i] < 0) parent[i] = k;
                length[i]++;
                seen[i] = k;
            }
    }
    sums[0] = sums[1] = 0;
    for (int k = 0; k < n; k++) { sums[0] += length[k]; sums[1] += (double)length[k] * length[k]; }
    free(place); free(parent); free(seen); free(length);
}
"""


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def compiled(folder):
    source, library = f"{folder}/count.c", f"{folder}/count.so"
    pathlib.Path(source).write_text(COUNTER)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
    return ctypes.CDLL(library)


def work(counter, graph, order):
    sums = np.zeros(2)
    order = np.ascontiguousarray(order, dtype=np.int32)
    assert np.array_equal(np.sort(order), np.arange(len(order)))
    counter.count(len(order), pointer(graph.indptr), pointer(graph.indices), pointer(order), pointer(sums))
    return sums[1]


def by_metis(metis, graph):
    n = ctypes.c_int32(graph.shape[0])
    order, place = np.empty(n.value, np.int32), np.empty(n.value, np.int32)
    status = metis.METIS_NodeND(
        ctypes.byref(n), pointer(graph.indptr), pointer(graph.indices), None, None, pointer(order), pointer(place)
    )
    assert status == 1, status
    return order


def by_amd(amd, graph):
    order = np.empty(graph.shape[0], np.int32)
    status = amd.amd_order(len(order), pointer(graph.indptr), pointer(graph.indices), pointer(order), None, None)
    assert status in (0, 1), status
    return order


def timed(call, *arguments):
    began = time.perf_counter()
    return call(*arguments), time.perf_counter() - began


def files():
    folder = pathlib.Path(os.environ.get("KRYSP_MATRICES", ROOT / "../shared/matrices"))
    for path in sorted(folder.rglob("*.mtx.gz"), key=lambda path: path.stat().st_size):
        with gzip.open(path, "rt") as file:
            head = file.readline().lower()
            sizes = next(line for line in file if not line.startswith("%")).split()
        if "coordinate" in head and "complex" not in head and sizes[0] == sizes[1] and 1000 <= int(sizes[0]) <= 400000:
            yield path


def graphs(folder, paths):
    """Names, and the patterns of A + Aᵀ without a diagonal; each with a diagonal is in a file of `folder`."""
    named = {pathlib.Path(path).name.split(".")[0]: lambda path=path: scipy.io.mmread(path) for path in paths}
    if not paths:
        named = {path.name.split(".")[0]: lambda path=path: scipy.io.mmread(path) for path in files()}
        named |= PROBLEMS
    for name, make in named.items():
        a = sp.csr_matrix(make())
        pattern = sp.csr_matrix((np.ones(a.nnz, np.float32), a.indices, a.indptr), a.shape)
        graph = sp.csr_matrix(pattern + pattern.T + sp.identity(a.shape[0], np.float32))
        graph.sort_indices()
        sp.save_npz(f"{folder}/{name}.npz", graph, compressed=False)
        graph.setdiag(0)
        graph.eliminate_zeros()
        graph.indptr, graph.indices = graph.indptr.astype(np.int32), graph.indices.astype(np.int32)
        yield name, graph


def main(paths):
    metis, amd = ctypes.CDLL("libmetis.so.5"), ctypes.CDLL("libamd.so.2")
    print("matrix,rows,chosen,degree,dissection,METIS,AMD,ratio,krysp_s,METIS_s,AMD_s")
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        counter = compiled(folder)
        for name, graph in graphs(folder, paths):
            command = ["cargo", "bench", "--quiet", "--bench", "direct", "--", "--orders", folder, f"{folder}/{name}.npz"]
            environment = os.environ | {"RAYON_NUM_THREADS": "1"}
            printed = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout
            seconds = sum(float(field) for field in printed.strip().split("\n")[-1].split(",")[1:]) / 1e3
            own = {kind: work(counter, graph, np.load(f"{folder}/{name}.{kind}.npy")) for kind in ORDERS}
            (from_metis, metis_s), (from_amd, amd_s) = timed(by_metis, metis, graph), timed(by_amd, amd, graph)
            others = [work(counter, graph, from_metis), work(counter, graph, from_amd)]
            chosen = own["Chosen"]
            ratios.append(chosen / min(others))
            over = [own["Degree"], own["Dissection"], *others]
            over = ",".join(f"{other / chosen:.3f}" for other in over)
            print(
                f"{name},{graph.shape[0]},{chosen:.4e},{over},{ratios[-1]:.3f},{seconds:.3f},{metis_s:.3f},{amd_s:.3f}",
                flush=True,
            )
            for file in pathlib.Path(folder).glob(f"{name}.*"):
                file.unlink()
    mean = np.exp(np.mean(np.log(ratios)))
    print(f"geometric mean of {len(ratios)} ratios: {mean:.3f}; from {min(ratios):.3f} to {max(ratios):.3f}")


if __name__ == "__main__":
    main(sys.argv[1:])
