"""Matrices, operators and preconditioners that change while something uses them."""

import subprocess
import sys
import threading
from pathlib import Path

import krysp
import numpy as np
import pytest
from test_inputs import poisson

# Programs that change index arrays of A during a solve, and print "done". Each runs in a separate process, because a crash would end the
# tests.
CHANGES = {
    "by a callback": "krysp.cg(A, b, callback=lambda x: change())",
    "by a preconditioner": "krysp.gmres(A, b, M=lambda r: (change(), r)[1])",
    "of several columns": "krysp.cg(A, np.stack([b, b], axis=1), M=lambda r: (change(), r)[1])",
    "by another thread": """
thread = threading.Thread(target=lambda: (time.sleep(0.05), change()))
thread.start()
krysp.gmres(A, b, rtol=1e-14, maxiter=20)
thread.join()
""",
    "of a preconditioner": "krysp.cg(B, b, M=A, callback=lambda x: change())",
    "of factors": "factors = krysp.splu(A); change(); factors.solve(b)",
}


@pytest.mark.parametrize("array", ["indices[:] = 2**31 - 1", "indptr[3] = 2**31 - 1"])
@pytest.mark.parametrize("change", CHANGES)
def test_changed_index_arrays_do_no_harm(change, array):
    code = f"""
import krysp, numpy as np, threading, time
from test_inputs import poisson
A, B = poisson(40), poisson(40)
b = np.ones(1600)
def change():
    A.{array}
{CHANGES[change]}
print("done")
"""
    here = Path(__file__).resolve().parent
    ended = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True)
    assert ended.stdout == "done\n", (ended.returncode, ended.stderr)


def test_a_solve_uses_the_indices_that_it_was_given():
    a, b = poisson(), np.ones(144)
    expected = krysp.cg(a, b).x

    def change(x):
        a.indices[:] = 0
        a.indptr[1:-1] = 0

    np.testing.assert_array_equal(krysp.cg(a, b, callback=change).x, expected)


def test_arrays_of_scipy_that_are_too_long_are_accepted():
    a, b = poisson(), np.ones(144)
    expected = krysp.cg(a, b).x
    a.indices, a.data = np.append(a.indices, [-1, 10**6]).astype(np.int32), np.append(a.data, [np.nan, 0.0])
    np.testing.assert_array_equal(krysp.cg(a, b).x, expected)


def test_factors_are_those_of_the_matrix_as_it_was():
    a, b = poisson(), np.arange(144.0)
    unchanged = a.copy()
    factors, solve = krysp.splu(a), krysp.factorized(a)
    a.data *= 2.0
    for x in (factors.solve(b), factors.solve(b, "T"), solve(b)):
        np.testing.assert_allclose(unchanged @ x, b, atol=1e-10)


@pytest.mark.parametrize("kind", ["operator", "preconditioner"])
def test_refreshing_what_is_in_use_says_so(kind):
    a, b = poisson(), np.ones(144)
    op = krysp.Operator(a, "cpu")
    m = krysp.jacobi(op)
    refresh = {"operator": lambda: op.refresh(2.0 * a.data), "preconditioner": lambda: m.refresh(op)}[kind]
    with pytest.raises(RuntimeError, match="is in use, by another thread or by the solve that called this function"):
        krysp.cg(op, b, M=m, callback=lambda x: refresh())
    refresh()
    assert krysp.cg(op, b, M=m).info == 0


def test_two_threads_that_refresh_and_solve_get_results_or_an_error_in_words():
    a, b = poisson(40), np.ones(1600)
    op = krysp.Operator(a, "cpu")
    failed, stop = [], threading.Event()

    def work(call):
        while not stop.is_set():
            try:
                call()
            except RuntimeError as error:
                failed.append(str(error))

    calls = (lambda: krysp.cg(op, b), lambda: op.refresh(a.data), lambda: op.refresh(a), lambda: op @ b, lambda: krysp.ilu0(op))
    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    stop.wait(0.5)
    stop.set()
    for thread in threads:
        thread.join()
    assert all("is in use" in text or "refreshes this operator" in text for text in failed), set(failed)
    assert krysp.cg(op, b).info == 0
