"""Callbacks, reports, threads, signals, memory, plans and pictures."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import krysp
import numpy as np
import pytest
import scipy.sparse as sp
from test_inputs import METHODS, poisson


@pytest.mark.parametrize("method", [krysp.cg, krysp.minres, krysp.bicgstab])
def test_callbacks_see_every_iterate(method):
    a, b, seen = poisson(20), np.ones(400), []
    result = method(a, b, rtol=1e-10, callback=lambda x: seen.append(x))
    assert len(seen) == result.report.iterations
    residuals = [np.linalg.norm(b - a @ x) for x in seen]
    np.testing.assert_allclose(residuals, result.report.history[1:], rtol=1e-3, atol=1e-8)


def test_callbacks_see_whole_iterates_of_long_solves():
    # long enough that the driver accumulates updates of x separately (group-wise update)
    a, b, seen = poisson(100), np.random.default_rng(3).random(10_000), []
    result = krysp.cg(a, b, rtol=0.0, maxiter=400, callback=lambda x: seen.append(np.linalg.norm(b - a @ x)))
    assert len(seen) == 400
    np.testing.assert_allclose(seen, result.report.history[1:], rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("method", [krysp.gmres, krysp.fgmres])
def test_callbacks_of_cycles(method):
    a, b = poisson(20), np.ones(400)
    residuals: list[float] = []
    result = method(a, b, rtol=1e-8, restart=7, callback=residuals.append, callback_type="pr_norm")
    np.testing.assert_allclose(residuals, result.report.history[1:] / 20.0)
    cycles: list[np.ndarray] = []
    result = method(a, b, rtol=1e-8, restart=7, callback=cycles.append, callback_type="x")
    assert len(cycles) == -(-result.report.iterations // 7)
    np.testing.assert_array_equal(cycles[-1], result.x)
    assert method(a, b, rtol=1e-8, restart=7, maxiter=2).info == 2
    with pytest.warns(DeprecationWarning, match="without specifying `callback_type`"):
        assert method(a, b, rtol=1e-8, maxiter=2, callback=lambda r: None).info == 2


def test_info_is_honest():
    a, b = poisson(20), np.ones(400)
    few = krysp.cg(a, b, maxiter=3)
    assert few.info == 3 and not few.report.converged
    assert "after 3 iterations, " in str(few.report)
    assert "after 1 iteration, " in str(krysp.cg(a, b, maxiter=1).report)
    # the advice names the keyword of this interface, not the option of the Rust library
    assert "`maxiter`" in few.report.advice and "max_iterations" not in str(few.report)
    # an option that the function lacks is named with the function that has it
    dependent = krysp.gmres(sp.csr_array([[1.0, 0.0], [1.0, 0.0]]), np.array([0.0, 1.0]))
    assert "`b`" in dependent.report.advice and "`null_space` of `krysp.solve`" in dependent.report.advice
    # symmetric, but not definite
    indefinite = sp.csr_array([[0.0, 1.0], [1.0, 0.0]])
    broken = krysp.cg(indefinite, np.array([1.0, 0.0]))
    assert broken.info < 0 and "broke down" in broken.report.outcome
    # the tolerance is below the rounding level
    rough = krysp.cg(a, b, rtol=1e-20)
    assert rough.info != 0
    assert krysp.cg(a, np.full(400, np.nan)).info < 0
    for rtol in (1e-3, 1e-6, 1e-9, 1e-12):
        for method in METHODS:
            x, info = method(a, b, rtol=rtol)
            assert info == 0 and np.linalg.norm(b - a @ x) <= rtol * np.linalg.norm(b) * (1 + 1e-6)


def test_reports_read_well():
    a, b = poisson(20), np.ones(400)
    result = krysp.cg(a, b, rtol=1e-8)
    report = result.report
    assert report.method == "cg" and report.outcome == "converged" and report.advice is None
    assert report.history.shape == (report.iterations + 1,)
    assert report.true_residual <= report.tolerance == 1e-8 * report.rhs_norm
    assert report.relative_residual == report.true_residual / report.rhs_norm
    assert 0.0 < report.backward_error < 1e-8 and report.condition > 10.0
    assert report.time > 0.0 and report.bytes > 0 and report.restarts == 0 and report.attempts == []
    assert report.setup == 0.0 and f"solve {report.time:.3f} s" in str(report)
    planned = krysp.solve(a, b, device="cpu").report
    assert 0.0 < planned.setup < planned.time and f"setup {planned.setup:.3f} s, solve " in str(planned)
    assert str(report).startswith("cg: converged after") and "<table>" in report._repr_html_()
    assert "converged" in repr(result) and "<table>" in result._repr_html_()


def test_callbacks_may_wait_for_another_solve():
    a, b = poisson(120), np.ones(14_400)
    ended: list[int] = []
    other = threading.Thread(target=lambda: ended.append(krysp.cg(a, b, rtol=1e-6).info))

    def callback(_: np.ndarray) -> None:
        if other.ident is None:
            other.start()
        other.join()
        inner.append(krysp.cg(a, b, rtol=1e-2).info)

    inner: list[int] = []
    assert krysp.cg(a, b, maxiter=3, callback=callback).info == 3
    assert ended == [0] and inner == [0, 0, 0]


def test_two_threads_solve_at_once():
    a = poisson(250)
    operator, b = krysp.Operator(a, "cpu"), np.ones(250 * 250)
    done: list[int] = []
    together = threading.Barrier(2)

    def solve() -> None:
        together.wait()
        done.append(krysp.cg(operator, b, rtol=1e-8).info)

    threads = [threading.Thread(target=solve) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert done == [0, 0]


def test_other_threads_run_during_a_solve():
    a, b = poisson(300), np.random.default_rng(4).random(90_000)
    ticks, solving = [], threading.Event()
    ended = threading.Event()

    def tick() -> None:
        solving.wait()
        while not ended.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    solving.set()
    started = time.perf_counter()
    krysp.cg(a, b, rtol=0.0, maxiter=1000)
    stopped = time.perf_counter()
    ended.set()
    thread.join()
    within = [at for at in ticks if started < at < stopped]
    assert len(within) > 10, (len(within), stopped - started)


LONG = """
import krysp, numpy as np, scipy.sparse as sp
line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(700, 700))
a = sp.kronsum(line, line, format="csr")
print("begins", flush=True)
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize(
    "call",
    [
        "krysp.cg(a, np.random.default_rng(5).random(490_000), rtol=0.0, maxiter=10**9)",
        "krysp.minres(lambda x: a @ x, np.random.default_rng(5).random(490_000), rtol=0.0, maxiter=10**9)",
        "krysp.Plan(a - 0.1 * sp.eye_array(490_000), 'cpu', rtol=1e-30, maxiter=10**9).solve(np.ones(490_000))",
    ],
)
def test_an_interrupt_ends_a_solve(call):
    process = subprocess.Popen(
        [sys.executable, "-c", LONG.format(call=call)], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    assert process.stdout is not None and process.stdout.readline() == "begins\n"
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out == "interrupted\n"


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_memory_stays_flat_over_ten_thousand_solves():
    a, b = poisson(10), np.ones(100)
    operator = krysp.Operator(a, "cpu")
    m = krysp.jacobi(operator)
    for _ in range(200):
        krysp.cg(a, b, M=m)
        krysp.gmres(operator, b, callback=lambda r: None, callback_type="pr_norm")
    before = resident()
    # 10,000 solves
    for _ in range(5000):
        krysp.cg(a, b, M=m)
        krysp.gmres(operator, b, callback=lambda r: None, callback_type="pr_norm")
    grown = resident() - before
    print(f"{grown / 1e6:.2f} MB more after 10,000 solves")
    assert grown < 2 << 20


def test_a_large_matrix_is_not_copied():
    # 40 MB, or KRYSP_LARGE megabytes; 25 entries a row, so that a copy takes more memory than all vectors of a solve
    n = int(os.environ.get("KRYSP_LARGE", "40")) * 3300
    diagonals = [30.0 if offset == 0 else -1.0 for offset in range(-12, 13)]
    a = sp.diags_array(diagonals, offsets=range(-12, 13), shape=(n, n), format="csr")
    arrays = a.data.nbytes + a.indices.nbytes + a.indptr.nbytes
    b = np.ones(n)
    # reset the peak, because creating the matrix needed more
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    assert krysp.cg(a, b).info == 0
    grown = peak() - before
    print(f"{arrays / 1e6:.0f} MB of matrix, {b.nbytes / 1e6:.1f} MB of vector, {grown / 1e6:.1f} MB more at the peak")
    # the solve allocates the vectors of the method and little else, but no copy of the matrix
    assert grown < 9 * b.nbytes + (16 << 20) < arrays


def test_long_solves_move_to_a_copy_that_is_faster():
    # unknowns in random order, and a badly scaled diagonal that needs a preconditioner
    n, numbers = 110 * 110, np.random.default_rng(9)
    order, scale = numbers.permutation(n), sp.diags_array(10.0 ** numbers.uniform(-2, 2, n))
    a, b = (scale @ poisson(110) @ scale).tocsr()[order][:, order].tocsr(), numbers.random(n)
    assert krysp.cg(poisson(110), b, rtol=1e-8, callback=lambda x: None).report.restarts == 0
    for method in (krysp.cg, krysp.bicgstab):
        seen = []
        stays = method(a, b, M=krysp.jacobi(a), rtol=1e-8, callback=seen.append)
        assert len(seen) == stays.report.iterations
        for m in (krysp.jacobi(a), sp.diags_array(1.0 / a.diagonal())):
            x, info = result = method(a, b, M=m, rtol=1e-8)
            assert info == 0 and np.linalg.norm(a @ x - b) <= 1.01e-8 * np.linalg.norm(b)
            report = result.report
            assert report.restarts > 0 and len(report.history) == report.iterations + 1
            # at most the iterations before the switch are lost, apart from rounding effects
            assert report.iterations <= 1.2 * stays.report.iterations + 60
        few = method(a, b, M=m, rtol=1e-8, maxiter=60)
        assert few.report.iterations == few.info == 60
        y = method(a, b, x0=x, M=m, rtol=1e-8)
        assert y.info == 0 and y.report.iterations <= 1


def test_one_call_solves():
    a = poisson(40)
    b = np.random.default_rng(6).random(1600)
    x, info = krysp.solve(a, b)
    assert info == 0 and np.linalg.norm(a @ x - b) <= 1e-8 * np.linalg.norm(b)
    result = krysp.solve(a.astype(np.float32), b, rtol=1e-4, device="cpu")
    assert result.info == 0 and result.x.dtype == np.float32 and result.report.attempts
    # the default tolerance is one that single precision can reach
    assert krysp.solve(a.astype(np.float32), b, device="cpu").info == 0
    unsymmetric = (a + sp.diags_array([0.9], offsets=[1], shape=a.shape)).tocsr()
    assert krysp.solve(unsymmetric, b).info == 0
    singular = sp.csr_array([[1.0, 1.0], [1.0, 1.0]])
    assert krysp.solve(singular, np.array([1.0, 0.0])).info != 0
    with pytest.raises(ValueError, match="as many equations as unknowns"):
        krysp.solve(a[:5], np.ones(5))


def test_plans_solve_often_and_take_new_values():
    a, b = poisson(40), np.ones(1600)
    plan = krysp.Plan(a, "cpu", solves=100, values_change=True, rtol=1e-10)
    assert str(plan) and "<pre>" in plan._repr_html_() and "1600 x 1600" in repr(plan)
    for factor in (1.0, 2.0, 4.0):
        plan.refresh(factor * a.data)
        x, info = plan.solve(b)
        assert info == 0 and np.linalg.norm(factor * (a @ x) - b) <= 1e-10 * 40.0 * (1 + 1e-6)
    assert plan.solve(b, x0=x).report.iterations <= 2
    with pytest.raises(ValueError, match="b must have 1600 entries"):
        plan.solve(np.ones(3))


def test_plans_are_saved_and_loaded(tmp_path):
    a, b = poisson(40), np.ones(1600)
    path = tmp_path / "plan.krysp"
    plan = krysp.Plan(a, "cpu")
    x, _ = plan.solve(b)
    plan.save(path)
    loaded = krysp.Plan.load(path, a, "cpu")
    again = loaded.solve(b)
    # a loaded plan has the findings of the first solve, and may choose other candidates
    assert again.info == 0 and np.allclose(again.x, x, rtol=1e-5) and str(path) in str(loaded)
    y, info = krysp.Plan.load(path, 2.0 * a, "cpu", rtol=1e-10).solve(b)
    assert info == 0 and np.allclose(2.0 * y, x, rtol=1e-5)
    with pytest.raises(krysp.KryspError, match="a different sparsity pattern"):
        krysp.Plan.load(path, poisson(30), "cpu")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(krysp.KryspError, match="were saved"):
        krysp.Plan.load(path, a, "cpu")


def springs(side):
    """A square of nodes with springs between neighbours, fixed at x = 0. Returns the matrix and the points of the free nodes."""
    points = np.argwhere(np.ones((side, side))).astype(float)
    pairs = [(i, j) for i in range(len(points)) for j in (i + 1, i + side, i + side + 1, i + side - 1)]
    i, j = np.array([(i, j) for i, j in pairs if j < len(points) and abs(points[j] - points[i]).max() == 1]).T
    along = (points[j] - points[i]) / np.linalg.norm(points[j] - points[i], axis=1)[:, None]
    columns = np.column_stack([2 * i, 2 * i + 1, 2 * j, 2 * j + 1])
    stretch = sp.coo_array((np.hstack([-along, along]).ravel(), (np.repeat(np.arange(len(i)), 4), columns.ravel()))).tocsr()
    free = points[:, 0] > 0
    both = np.repeat(free, 2)
    return (stretch.T @ stretch).tocsr()[both][:, both], points[free]


def test_plans_use_declared_properties(tmp_path):
    a, points = springs(60)
    n = a.shape[0]
    b = np.ones(n)
    modes = krysp.rigid_body_modes(points)
    each, components = np.repeat(points, 2, axis=0), np.tile([0, 1], len(points))
    for known in (
        {"coordinates": points},
        {"coordinates": each, "components": components},
        {"near_null_space": modes},
        {"symmetric": True, "positive_definite": True, "fields": components},
    ):
        x, info = krysp.solve(a, b, device="cpu", **known)
        assert info == 0 and np.linalg.norm(a @ x - b) <= 1e-8 * np.linalg.norm(b)
        assert krysp.solve(a.astype(np.float32), b, device="cpu", **known).info == 0
    informed = krysp.Plan(a, "cpu", coordinates=points)
    assert "given: coordinates of" in str(informed) and "hint" not in str(informed)
    blocks = sp.kron(poisson(10), [[2.0, 1.0], [1.0, 2.0]], format="csr")
    assert "hint: blocks of 2 x 2" in str(krysp.Plan(blocks, "cpu"))
    assert "Minres" not in str(krysp.Plan(a, "cpu", positive_definite=True))
    informed.save(tmp_path / "plan")
    assert krysp.Plan.load(tmp_path / "plan", a, "cpu").solve(b).info == 0

    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(100, 100)).tolil()
    line[0, 0] = line[-1, -1] = 1.0
    b = np.linspace(0.0, 1.0, 100)
    for null_space in ("constant", np.ones(100), np.ones((100, 1))):
        x, info = krysp.solve(line.tocsr(), b, device="cpu", null_space=null_space)
        assert info == 0 and abs(x.mean()) < 1e-9 * np.abs(x).max()
        assert np.linalg.norm(line @ x - b + b.mean()) <= 1e-7


@pytest.mark.parametrize(
    ("known", "error", "words"),
    [
        ({"coordinates": np.eye(5, 2)}, ValueError, "one point for each node is needed"),
        ({"coordinates": np.ones(12)}, ValueError, r"coordinates must have shape \(points, 2\) or \(points, 3\); got \(12,\)"),
        ({"coordinates": np.full((6, 2), np.nan)}, ValueError, "point 0 is"),
        ({"components": np.ones(12, int)}, ValueError, "components need coordinates"),
        ({"coordinates": np.eye(12, 2), "components": np.full(12, 3)}, ValueError, "unknown 0 has 3"),
        ({"coordinates": np.eye(12, 2), "components": np.full(12, 0.5)}, TypeError, "components must have an integer dtype; got float64"),
        ({"near_null_space": np.ones((5, 2))}, ValueError, r"near_null_space must have shape \(12,\) or \(12, k\); got \(5, 2\)"),
        ({"near_null_space": np.zeros(12)}, ValueError, "vector 0 is zero"),
        ({"null_space": "ones"}, ValueError, 'null_space must be "constant" or an array; got \'ones\''),
        ({"null_space": np.ones(12)}, ValueError, "not in the null space"),
        ({"symmetric": True}, ValueError, r"symmetric: the matrix is not symmetric: entry \(0, 1\) is 1e0"),
        ({"positive_definite": True}, ValueError, "positive_definite: the matrix is not symmetric"),
        ({"fields": np.full(12, 1)}, ValueError, "no unknown has 0"),
        ({"fields": np.full(12, -1)}, ValueError, "fields must be integers from 0 to 11"),
        ({"fields": np.ones(3, int)}, ValueError, r"fields must have shape \(12,\); got \(3,\)"),
    ],
)
def test_what_does_not_fit_is_refused(known, error, words):
    a = sp.diags_array([4.0, 1.0], offsets=[0, 1], shape=(12, 12)).tocsr()
    with pytest.raises(error, match=words):
        krysp.solve(a, np.ones(12), device="cpu", **known)


def test_pictures_are_drawn():
    pytest.importorskip("matplotlib").use("agg")
    ax = krysp.spy(poisson(30))
    assert "900 x 900" in ax.get_title()
    ax = krysp.cg(poisson(30), np.ones(900)).report.plot()
    assert ax.get_xlabel() == "iteration"


@pytest.mark.parametrize(
    "work",
    [lambda a, b: krysp.lu(a), krysp.spsolve],
    ids=["lu", "spsolve"],
)
def test_a_signal_interrupts_a_factorization(work):
    side = 42
    line = sp.diags_array([-1.0, 2.0, -0.4], offsets=[-1, 0, 1], shape=(side, side))
    a = sp.kronsum(sp.kronsum(line, line), line, format="csr")
    raised_at = []

    def interrupted(*_):
        raised_at.append(time.monotonic())
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupted)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.4)
        with pytest.raises(KeyboardInterrupt):
            work(a, np.ones(a.shape[0]))
        assert time.monotonic() - raised_at[0] < 1.5
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_small_system_is_solved_on_the_cpu():
    # even on a machine with a GPU, whose initialization takes longer than the solve
    plan = krysp.Plan(poisson(20))
    assert plan.device == "cpu"
    assert plan.solve(np.ones(400)).info == 0


def test_cudss_is_for_operators_on_a_gpu():
    with pytest.raises(ValueError, match="factorizes on a GPU"):
        krysp.cudss(sp.csr_array(np.eye(3)))
