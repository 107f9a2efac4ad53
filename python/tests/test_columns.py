"""Several right-hand sides: `b` of shape (n, k)."""

import numpy as np
import pytest
import scipy.sparse as sp

import krysp
from test_inputs import METHODS


def system(side=14, k=5, dtype=np.float64):
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(side, side))
    A = sp.csr_array(sp.kronsum(line, line, format="csr")).astype(dtype)
    B = np.random.default_rng(1).standard_normal((side * side, k)).astype(dtype)
    return A, B


@pytest.mark.parametrize("solve", METHODS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_columns_end_as_by_themselves(solve, dtype):
    A, B = system(dtype=dtype)
    M = krysp.jacobi(A)
    result = solve(A, B, rtol=1e-5, M=M)
    X, info = result
    assert X.shape == B.shape and X.dtype == dtype and info == 0
    assert len(result.reports) == 5
    for j, report in enumerate(result.reports):
        own = solve(A, B[:, j], rtol=1e-5, M=M)
        assert report.converged and report.iterations == own.report.iterations
        assert np.array_equal(X[:, j], own.x)
    assert result.report.iterations == max(report.iterations for report in result.reports)


def test_orders_and_operators():
    A, B = system()
    expected = krysp.cg(A, B).x
    for given in (np.asfortranarray(B), B[:, ::-1][:, ::-1], B.tolist()):
        assert np.array_equal(krysp.cg(A, given).x, expected)
    op = krysp.Operator(A, device="cpu", reorder=True)
    assert krysp.cg(op, B, M=krysp.jacobi(op)).info == 0
    assert krysp.cg(lambda x: A @ x, B).info == 0
    guessed = krysp.cg(A, B, expected)
    assert max(report.iterations for report in guessed.reports) == 0
    seen = []
    observed = krysp.cg(A, B, callback=seen.append)
    assert len(seen) == sum(report.iterations for report in observed.reports)
    assert np.array_equal(observed.x, expected)


def test_one_column_is_a_vector():
    A, B = system()
    assert krysp.cg(A, B[:, :1]).x.shape == (196,)
    assert len(krysp.cg(A, B[:, :1]).reports) == 1


def test_a_block_takes_fewer_iterations():
    A, B = system()
    alone = krysp.cg(A, B, rtol=1e-10)
    block = krysp.cg(A, B, rtol=1e-10, block=True)
    assert block.info == 0 and block.report.iterations < alone.report.iterations
    assert np.allclose(block.x, alone.x)
    assert [report.block for report in block.reports] == [5] * 5 and alone.report.block == 1
    assert "in a block of 5 right-hand sides" in str(block.report) and "block" not in str(alone.report)
    A32 = A.astype(np.float32)
    single = krysp.cg(A32, B.astype(np.float32), M=krysp.jacobi(A32), block=True)
    assert single.info == 0 and single.x.dtype == np.float32
    # one column, and columns with a guess, are solved separately
    assert np.array_equal(krysp.cg(A, B[:, 0], block=True).x, krysp.cg(A, B[:, 0]).x)
    assert max(report.iterations for report in krysp.cg(A, B, alone.x, block=True).reports) == 0


def test_a_block_of_gmres_takes_fewer_iterations():
    A, B = system()
    A = A + sp.diags_array([0.4, -0.4], offsets=[-1, 1], shape=A.shape)
    alone = krysp.gmres(A, B, rtol=1e-10, restart=30)
    block = krysp.gmres(A, B, rtol=1e-10, restart=30, block=True)
    assert block.info == 0 and block.report.iterations < alone.report.iterations
    assert np.allclose(block.x, alone.x)
    assert [report.block for report in block.reports] == [5] * 5 and alone.report.block == 1


def test_products():
    A, B = system(k=11)
    op = krysp.Operator(A, device="cpu")
    Y = op @ B
    assert Y.shape == B.shape and np.allclose(Y, A @ B, rtol=1e-13, atol=1e-13)
    assert all(np.array_equal(Y[:, j], op @ B[:, j]) for j in range(11))
    assert (op @ np.zeros((196, 0))).shape == (196, 0)


def test_plans():
    A, B = system(side=30)
    for result in (krysp.solve(A, B, device="cpu"), krysp.Plan(A, device="cpu").solve(B)):
        assert result.x.shape == B.shape and result.info == 0
        residual = np.linalg.norm(B - A @ result.x, axis=0)
        assert (residual <= 1.01e-8 * np.linalg.norm(B, axis=0)).all()
        assert all(report.attempts for report in result.reports)
    again = krysp.Plan(A, device="cpu").solve(B, result.x)
    assert again.x.shape == B.shape and again.info == 0


def test_plans_report_blocks():
    # large enough that multigrid is estimated to be faster than a factorization, which shares nothing
    A, _ = system(side=30)
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(30, 30))
    A = sp.csr_array(sp.kronsum(A, line, format="csr"))
    B = np.random.default_rng(1).standard_normal((A.shape[0], 9))
    result = krysp.solve(A, B, device="cpu")
    assert result.info == 0
    assert (np.linalg.norm(B - A @ result.x, axis=0) <= 1.01e-8 * np.linalg.norm(B, axis=0)).all()
    # the first column is solved by itself
    blocks = [report.block for report in result.reports]
    assert blocks[0] == 1 and max(blocks) > 1
    for report in result.reports:
        shared = f" in a block of {report.block} right-hand sides"
        assert (shared in report.attempts[-1]) == (shared in str(report)) == (report.block > 1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_spsolve(dtype):
    A, B = system(dtype=dtype)
    X = krysp.spsolve(A, B)
    assert X.shape == B.shape and X.dtype == dtype
    assert np.array_equal(X[:, 2], krysp.spsolve(A, B[:, 2]))
    assert np.array_equal(krysp.spsolve(A, sp.csc_array(B)), X)


def test_one_bad_column():
    A, B = system()
    B[3, 1] = np.nan
    result = krysp.cg(A, B)
    assert result.info == -1 and not result.report.converged
    assert [report.converged for report in result.reports] == [True, False, True, True, True]
    assert np.array_equal(result.x[:, 4], krysp.cg(A, B[:, 4]).x)
    few = krysp.cg(A, B, maxiter=2)
    assert few.info == 2 and few.reports[1].iterations == 0


@pytest.mark.parametrize("shape", [(196, 0), (195, 2), (5, 196), (196, 2, 1)])
def test_shapes(shape):
    A, _ = system()
    op = krysp.Operator(A, device="cpu")
    for solve in (krysp.cg, krysp.gmres, krysp.spsolve, lambda a, b: krysp.solve(a, b, device="cpu")):
        with pytest.raises(ValueError, match="shape"):
            solve(A, np.zeros(shape))
    if shape[1:] != (0,):
        with pytest.raises(ValueError):
            op @ np.zeros(shape)
    with pytest.raises(ValueError, match="x0 must have the shape of b"):
        krysp.cg(A, np.zeros((196, 2)), np.zeros((196, 3)))
    with pytest.raises(ValueError, match="complex"):
        krysp.cg(A, np.zeros((196, 2), complex))


@pytest.mark.parametrize("shape", [(196, 8, 1), (196, 1, 1)])
def test_dimensions(shape):
    A, _ = system()
    for solve in (krysp.cg, krysp.gmres, krysp.spsolve, lambda a, b: krysp.solve(a, b, device="cpu")):
        with pytest.raises(ValueError, match=r"b must be one-dimensional or have shape \(196, k\); got \(196, \d, 1\)"):
            solve(A, np.zeros(shape))


def test_empty_systems():
    A, B = sp.csr_array((0, 0)), np.zeros((0, 3))
    result = krysp.cg(A, B)
    assert result.x.shape == (0, 3) and result.info == 0
    assert len(result.reports) == 3
    assert krysp.spsolve(A, B).shape == (0, 3)
    op = krysp.Operator(A, device="cpu")
    assert (op @ B).shape == (0, 3)
