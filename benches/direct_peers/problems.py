"""Three-dimensional problems for the comparison of direct solvers.

    python3 benches/direct_peers/problems.py FOLDER [NAME ...]   # writes FOLDER/real/NAME.mtx.gz; without a name, all of them
    KRYSP_MATRICES=FOLDER cargo bench --bench direct -- NAME
"""

import gzip
import io
import os
import sys

import numpy as np
import scipy.io
import scipy.sparse as sp


def line(n, skew=0.0):
    """Second differences on n points, plus `skew` times central differences."""
    return sp.diags([-np.ones(n - 1) - skew, 2 * np.ones(n), -np.ones(n - 1) + skew], [-1, 0, 1])


def cube(a):
    """The sum of `a` along each axis of a cube."""
    i = sp.identity(a.shape[0])
    return sp.kron(sp.kron(a, i), i) + sp.kron(sp.kron(i, a), i) + sp.kron(sp.kron(i, i), a)


def elasticity(n):
    """Linear elasticity of n³ trilinear cubes with Poisson's ratio 0.3; one face is clamped."""
    gauss = np.array([-1, 1]) / np.sqrt(3)
    corners = np.array([[i, j, k] for k in (-1, 1) for j in (-1, 1) for i in (-1, 1)], float)
    law = np.zeros((6, 6))
    law[:3, :3] = 0.3 / (1.3 * 0.4)
    law[range(3), range(3)] += 1 / 1.3
    law[range(3, 6), range(3, 6)] = 0.5 / 1.3
    element = np.zeros((24, 24))
    for at in np.array(np.meshgrid(gauss, gauss, gauss)).reshape(3, 8).T:
        strain = np.zeros((6, 24))
        for node, corner in enumerate(corners):
            factors = 1 + corner * at
            a, b, c = (corner[d] * np.prod(np.delete(factors, d)) / 4 for d in range(3))
            strain[:, 3 * node : 3 * node + 3] = [[a, 0, 0], [0, b, 0], [0, 0, c], [b, a, 0], [0, c, b], [c, 0, a]]
        element += strain.T @ law @ strain / 8
    m = n + 1
    i, j, k = (axis.ravel() for axis in np.meshgrid(*[np.arange(n)] * 3, indexing="ij"))
    nodes = np.stack([((k + (z > 0)) * m + j + (y > 0)) * m + i + (x > 0) for x, y, z in corners], 1)
    unknowns = (3 * nodes[:, :, None] + np.arange(3)).reshape(len(nodes), 24)
    rows, columns = np.repeat(unknowns, 24, 1).ravel(), np.tile(unknowns, (1, 24)).ravel()
    a = sp.coo_matrix((np.tile(element.ravel(), len(unknowns)), (rows, columns)), shape=(3 * m**3,) * 2).tocsr()
    free = np.arange(3 * m * m, 3 * m**3)
    return ((a + a.T) / 2)[free][:, free]


def maxwell(n, square):
    """curl curl − k² on a Yee grid of n³ cells with conducting walls, where k² is `square`."""
    cells, inner = sp.identity(n), sp.identity(n - 1)
    d = sp.diags([-np.ones(n - 1), np.ones(n - 1)], [0, -1], shape=(n, n - 1))

    def along(z, y, x):
        return sp.kron(sp.kron(z, y), x)

    zx, yx = along(d, inner, cells), along(inner, d, cells)
    zy, xy = along(d, cells, inner), along(inner, cells, d)
    yz, xz = along(cells, d, inner), along(cells, inner, d)
    curl = sp.bmat([[None, -zy, yz], [zx, None, -xz], [-yx, xy, None]])
    return curl.T @ curl - square * sp.identity(curl.shape[1])


PROBLEMS = {
    "poisson40": lambda: cube(line(40)),
    "poisson56": lambda: cube(line(56)),
    "convdiff40": lambda: cube(line(40, 0.6)),
    "shifted37": lambda: cube(line(37)) - 0.37 * sp.identity(37**3),
    "maxwell26": lambda: maxwell(26, 0.31),
    "elast20": lambda: elasticity(20),
    "elast30": lambda: elasticity(30),
}


def write(folder, names):
    os.makedirs(f"{folder}/real", exist_ok=True)
    for name in names or PROBLEMS:
        a, text = PROBLEMS[name]().tocsr(), io.BytesIO()
        scipy.io.mmwrite(text, a, precision=17, symmetry="general")
        with gzip.open(f"{folder}/real/{name}.mtx.gz", "wb", 1) as file:
            file.write(text.getvalue())
        print(f"{name}: {a.shape[0]} rows, {a.nnz} entries", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2 or any(name not in PROBLEMS for name in sys.argv[2:]):
        sys.exit(f"{__doc__}\nProblems: {', '.join(PROBLEMS)}")
    write(sys.argv[1], sys.argv[2:])
