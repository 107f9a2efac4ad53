"""Measures the matrix-vector product in every installed library. Prints a tab-separated line for each: `measured`, name, device
and times, or `absent` and name.
"""

import sys
import time

import numpy as np
import scipy.sparse

a = scipy.sparse.load_npz(sys.argv[1]).tocsr()
x = 1.0 + np.arange(a.shape[1]) % 7
reference = a @ x
scale = abs(a) @ x


def scipy_rows():
    return "cpu", lambda: lambda: a @ x, lambda: None


def petsc():
    import petsc4py

    petsc4py.init([])
    from petsc4py import PETSc

    def convert():
        matrix = PETSc.Mat().createAIJ(a.shape, csr=(a.indptr, a.indices, a.data), comm=PETSc.COMM_SELF)
        right, left = matrix.createVecs()
        right.setArray(x)

        def product():
            matrix.mult(right, left)
            return left.array_r

        return product

    return "cpu", convert, lambda: None


def mkl():
    from sparse_dot_mkl import dot_product_mkl

    return "cpu", lambda: lambda: dot_product_mkl(a, x), lambda: None


def cupy():
    import cupy
    from cupyx.scipy.sparse import csr_matrix

    there = cupy.asarray(x)

    def convert():
        matrix = csr_matrix(a)
        return lambda: matrix @ there

    return "gpu:0", convert, cupy.cuda.Device(0).synchronize


def measure(device, convert, wait):
    """Returns the device, and the seconds of the conversion and of a product.

    The time of a product is a quarter of the fastest round of four products.
    """
    convert()
    wait()
    started = time.perf_counter()
    product = convert()
    wait()
    conversion = time.perf_counter() - started
    y = product()
    y = y.get() if hasattr(y, "get") else np.asarray(y)
    if not np.all(np.abs(y - reference) <= 1e-12 * scale):
        raise ArithmeticError("its product is not that of SciPy")
    best, rounds, beginning = float("inf"), 0, time.perf_counter()
    while rounds < 3 or (rounds < 200 and time.perf_counter() - beginning < 0.2):
        started = time.perf_counter()
        for _ in range(4):
            product()
        wait()
        best = min(best, (time.perf_counter() - started) / 4)
        rounds += 1
    return device, conversion, best


for name, library in (("SciPy", scipy_rows), ("petsc4py", petsc), ("MKL", mkl), ("CuPy", cupy)):
    try:
        print("measured", name, *measure(*library()), sep="\t", flush=True)
    except ImportError:
        print("absent", name, sep="\t", flush=True)
    except Exception as error:  # a library without its device, for example
        print("absent", f"{name} ({str(error).splitlines()[0] if str(error) else type(error).__name__})", sep="\t", flush=True)
