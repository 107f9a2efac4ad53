"""Processes forked after krysp was used. Each test runs a separate program, which is killed if it hangs."""

import os
import signal
import subprocess
import sys

import krysp
import pytest

# the beginning of each program; `everything` solves systems in many ways and returns the norms of the results
SETTING = """
import concurrent.futures, multiprocessing, os, sys, tempfile, threading, time, warnings
import krysp, numpy as np, scipy.sparse as sp

# Python 3.12 and later warn when a process with threads is forked
warnings.simplefilter("ignore", DeprecationWarning)
fork = multiprocessing.get_context("fork")
line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(60, 60))
A, b = sp.kronsum(line, line, format="csr"), np.arange(3600.0)
small, rhs = sp.csr_array([[4.0, 1.0], [1.0, 3.0]]), np.array([1.0, 2.0])
# few rows, but enough entries that matrix-vector products run on all threads
wide = sp.csr_array(np.ones((1000, 1000)) + 1000.0 * np.eye(1000))
operator, factors, plan = krysp.Operator(A, "cpu"), krysp.amg(A), krysp.Plan(A, "cpu")
dense = krysp.Operator(wide, "cpu")


def hard(n):
    # indefinite: converges slowly
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    return sp.kronsum(line, line, format="csr") - 0.1 * sp.eye_array(n * n), np.random.default_rng(5).random(n * n)


def everything(_=None):
    own = krysp.Operator(A, "cpu", reorder=True)
    own.refresh(2.0 * A.data)
    factors.refresh(A)
    inner = lambda r: krysp.cg(A, r, M=krysp.jacobi(A), rtol=1e-2).x
    with tempfile.TemporaryDirectory() as folder:
        own.save(os.path.join(folder, "a"))
        plan.save(os.path.join(folder, "b"))
        loaded = krysp.Operator.load(os.path.join(folder, "a"), "cpu")
        again = krysp.Plan.load(os.path.join(folder, "b"), A, "cpu")
    seen = []
    values = [
        krysp.cg(A, b, rtol=1e-10).x,
        krysp.cg(operator, b, M=factors, rtol=1e-10).x,
        krysp.cg(small, rhs, rtol=1e-10).x,
        krysp.gmres(dense, np.arange(1000.0), rtol=1e-10).x,
        krysp.fcg(operator, b, M=inner, callback=seen.append, rtol=1e-10).x,
        krysp.minres(lambda x: wide @ x, np.arange(1000.0), rtol=1e-10).x,
        operator @ b, dense @ np.ones(1000), loaded @ b, factors @ b,
        krysp.ilu0(own) @ b, krysp.lu(A) @ b, krysp.fsai(A) @ b, krysp.jacobi(A, block=2) @ b,
        krysp.solve(A, b, device="cpu", rtol=1e-10).x, again.solve(b).x, plan.solve(b).x,
        krysp.spsolve(A, b), krysp.rigid_body_modes(np.ones((7, 2))).ravel(), seen[-1],
    ]
    plan.refresh(A.data)
    return [float(np.linalg.norm(value)) for value in values]


def agree(one, other):
    np.testing.assert_allclose(one, other, rtol=1e-6)
"""


def run(program: str, **environment: str) -> str:
    """Runs a program and returns its output; fails the test if it takes longer than a minute."""
    process = subprocess.Popen(
        [sys.executable, "-c", SETTING + program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **environment},
    )
    try:
        out, errors = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        # also kills its children
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        pytest.fail("a forked process hangs")
    assert process.returncode == 0, errors
    return out


def test_workers_forked_after_a_solve_solve_as_their_parent_does():
    run(
        """
here = everything()
with fork.Pool(4) as pool:
    for there in pool.map(everything, range(4), chunksize=1):
        agree(there, here)
# as joblib and others do; the whole `Result` is sent back
with concurrent.futures.ProcessPoolExecutor(2, mp_context=fork) as pool:
    result = pool.submit(krysp.cg, A, b, rtol=1e-10).result()
    assert result.info == 0 and result.report.converged
    agree(result.x, krysp.cg(A, b, rtol=1e-10).x)
agree(everything(), here)
"""
    )


def test_processes_forked_by_forked_processes_solve():
    run(
        """
here = everything()

def child(connection):
    mine = everything()
    ours, theirs = fork.Pipe()
    grandchild = fork.Process(target=lambda: theirs.send(everything()))
    grandchild.start()
    connection.send((mine, ours.recv()))
    grandchild.join()

ours, theirs = fork.Pipe()
process = fork.Process(target=child, args=(theirs,))
process.start()
for there in ours.recv():
    agree(there, here)
process.join()
"""
    )


def test_threads_of_forked_processes_solve_at_once():
    run(
        """
here = everything()

def child(_):
    other = []

    def callback(x):
        # waits for a solve on another thread
        thread = threading.Thread(target=lambda: other.append(krysp.cg(A, b, rtol=1e-6).info))
        thread.start()
        thread.join()

    krysp.cg(A, b, maxiter=3, callback=callback)
    assert other == [0, 0, 0]
    with concurrent.futures.ThreadPoolExecutor(3) as threads:
        solve = lambda k: krysp.cg(operator, b, M=lambda r: k * r, rtol=1e-10).x
        return [float(np.linalg.norm(x)) for x in threads.map(solve, [1.0, 2.0, 3.0])]

with fork.Pool(1) as pool:
    norms = pool.map(child, [0])[0]
agree(norms, [here[0]] * 3)
"""
    )


def test_forked_processes_use_as_many_threads_as_the_environment_variable_says():
    out = run(
        """
everything()

def threads():
    return len(os.listdir("/proc/self/task"))

def child(_):
    before = threads()
    krysp.cg(A, b)
    return threads() - before

with fork.Pool(1) as pool:
    print(pool.map(child, [0])[0])
""",
        RAYON_NUM_THREADS="3",
    )
    assert out.split() == ["3"]


def test_a_plan_that_was_in_use_when_the_process_was_forked_is_refused():
    run(
        """
large, sides = hard(500)
long = krysp.Plan(large, "cpu", rtol=1e-30, maxiter=10**9, time_limit=3.0)
thread = threading.Thread(target=lambda: long.solve(sides))
thread.start()
time.sleep(0.5)

def child(_):
    try:
        long.solve(sides)
    except RuntimeError as error:
        return str(error)

with fork.Pool(1) as pool:
    assert "forked while another thread used the plan" in pool.map(child, [0])[0]
thread.join()
"""
    )


def test_an_interrupt_ends_a_solve_in_a_forked_process():
    out = run(
        """
import signal
everything()
large, sides = hard(500)

def child():
    for options in ({}, {"M": lambda r: r}):
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            krysp.minres(large, sides, rtol=0.0, maxiter=10**9, **options)
        except KeyboardInterrupt:
            print("interrupted", flush=True)

process = fork.Process(target=child)
process.start()
process.join()
"""
    )
    assert out.split() == ["interrupted", "interrupted"]


@pytest.mark.skipif(not krysp.devices(), reason="no CUDA device on this machine")
def test_the_error_for_a_gpu_in_a_forked_process_recommends_spawn():
    run(
        """
import gc
there = krysp.Operator(A, "cuda:0")
m = krysp.jacobi(there)
planned = krysp.Plan(A, "cuda:0")
x = krysp.cg(there, b, M=m, rtol=1e-10).x

def child(_):
    global there, m, planned
    calls = [
        lambda: krysp.Operator(A, "cuda:0"), lambda: krysp.solve(A, b, device="cuda:0"), lambda: there @ b,
        lambda: krysp.cg(there, b), lambda: krysp.jacobi(there), lambda: m @ b, lambda: planned.solve(b),
        lambda: there.refresh(A.data),
    ]
    for call in calls:
        try:
            call()
        except RuntimeError as error:
            assert 'multiprocessing.get_context("spawn")' in str(error), error
        else:
            raise AssertionError("no error")
    assert krysp.devices() == []
    del calls, call, there, m, planned
    gc.collect()
    return krysp.solve(A, b, rtol=1e-10).x

with fork.Pool(2) as pool:
    for y in pool.map(child, range(2), chunksize=1):
        agree(y, x)
agree(krysp.cg(there, b, M=m, rtol=1e-10).x, x)
"""
    )
