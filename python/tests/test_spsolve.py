"""The direct solver `spsolve`, which has the signature of SciPy's."""

import krysp
import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg  # noqa: F401
from test_inputs import poisson


def backward_error(a, x, b):
    norm = abs(a).sum(axis=1).max() * abs(x).max() + abs(b).max()
    return abs(b - a @ x).max() / norm


def test_spsolve_is_direct():
    numbers = np.random.default_rng(3)
    spd = poisson(40)
    upwind = (spd + sp.diags_array([0.9], offsets=[1], shape=spd.shape)).tocsr()
    indefinite = (spd - 0.5 * sp.eye_array(1600)).tocsr()
    permuted = sp.eye_array(1600, format="csr")[numbers.permutation(1600)].tocsr()
    b = numbers.random(1600)
    for a in (spd, upwind, indefinite, permuted, spd.tocoo(), upwind.tocsc(), 1e-150 * spd, 1e150 * upwind):
        x = krysp.spsolve(a, b)
        assert x.shape == (1600,) and x.dtype == np.float64
        # an iterative solve would leave 1e-8
        assert backward_error(a, x, b) < 1e-15
        np.testing.assert_allclose(x, sp.linalg.spsolve(a.tocsc(), b), rtol=1e-9)


def test_spsolve_is_called_as_scipys():
    a, b = poisson(), np.arange(144.0)
    x = sp.linalg.spsolve(a.tocsc(), b)
    column = b[:, None]
    for given in (b, column, sp.csc_array(column), list(b), b.astype(int)):
        np.testing.assert_allclose(krysp.spsolve(a, given), x)
    np.testing.assert_allclose(krysp.spsolve(a, b, "COLAMD", False), x)
    np.testing.assert_allclose(krysp.spsolve(a, b, permc_spec="NATURAL", use_umfpack=True), x)
    single = krysp.spsolve(a.astype(np.float32), b.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, x, rtol=1e-4)
    assert krysp.spsolve(a.astype(np.float32), b).dtype == np.float64
    assert krysp.spsolve(sp.csr_array((0, 0)), np.ones(0)).shape == (0,)
    assert not krysp.spsolve(a, np.zeros(144)).any()
    with pytest.raises(ValueError, match="permc_spec must be one of .*; got 'METIS'"):
        krysp.spsolve(a, b, "METIS")
    with pytest.raises(ValueError, match=r"b must have shape \(144,\) or \(144, k\) with k of 1 or more; got \(2, 144\)"):
        krysp.spsolve(a, np.ones((2, 144)))
    with pytest.raises(ValueError, match="square"):
        krysp.spsolve(a[:5], np.ones(5))
    with pytest.raises(ValueError, match="complex"):
        krysp.spsolve(a, b.astype(complex))


def test_spsolve_raises_where_it_has_no_solution():
    with pytest.raises(krysp.KryspError, match="singular"):
        krysp.spsolve(sp.csr_array([[1.0, 1.0], [1.0, 1.0]]), np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match="NaN"):
        krysp.spsolve(sp.csr_array([[np.nan, 0.0], [0.0, 1.0]]), np.ones(2))
    with pytest.raises(krysp.KryspError):
        krysp.spsolve(poisson(), np.full(144, np.nan))


def neumann(*shape):
    """The Laplacian on a grid without boundary conditions: singular, with the constants as null space."""
    a = sp.csr_array((1, 1))
    for n in shape:
        a = sp.kronsum(sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)), a, format="csr")
    return (a - sp.diags_array(a.sum(axis=1))).tocsr()


GRIDS = [(m, m) for m in range(5, 45)] + [(200, 150), (200,), (10, 12, 14)]


def test_singular_matrices_are_refused_whatever_rounding_leaves_of_the_last_pivot():
    numbers = np.random.default_rng(7)
    for grid in GRIDS:
        a = neumann(*grid)
        n = a.shape[0]
        scale = sp.diags_array(10.0 ** numbers.uniform(-6, 6, n))
        for singular in (a, (scale @ a @ scale).tocsr()):
            for b in (numbers.random(n), singular @ numbers.random(n)):
                with pytest.raises(krysp.KryspError, match="singular"):
                    krysp.spsolve(singular, b)
    with pytest.raises(krysp.KryspError, match="singular"):
        krysp.spsolve(neumann(30, 30).astype(np.float32), numbers.random(900).astype(np.float32))


def test_ill_conditioned_matrices_are_solved():
    numbers = np.random.default_rng(8)
    a = poisson(30)
    scale = sp.diags_array(10.0 ** numbers.uniform(-9, 9, 900))
    # badly scaled, nearly singular, and with a large condition number by nature: a clamped beam
    beam = sp.diags_array([1.0, -4.0, 6.0, -4.0, 1.0], offsets=[-2, -1, 0, 1, 2], shape=(3000, 3000), format="csr")
    for given in ((scale @ a @ scale).tocsr(), neumann(30, 30) + 1e-11 * sp.eye_array(900, format="csr"), beam):
        exact = numbers.random(given.shape[0])
        b = given @ exact
        x = krysp.spsolve(given, b)
        assert np.linalg.norm(given @ x - b) <= 1e-7 * np.linalg.norm(b)


def test_a_solution_that_is_no_better_than_zero_is_refused():
    # one equation is lost in rounding: the residual is as large as b
    tiny = 1e-25
    a = sp.csr_array([[1.0, 1.0], [1.0, 1.0 + 2**-52]])
    with pytest.raises(krysp.KryspError, match="singular"):
        krysp.spsolve(a, np.array([1.0, 0.5]))
    # an entry may be small without being lost
    x = krysp.spsolve(sp.csr_array([[1.0, 0.0], [0.0, tiny]]), np.array([1.0, 1.0]))
    np.testing.assert_allclose(x, [1.0, 1.0 / tiny])


def test_ldl_refuses_unsymmetric_matrices():
    with pytest.raises(ValueError, match="not symmetric"):
        krysp.ldl(sp.csr_array([[1.0, 1.0], [0.0, 1.0]]))


def test_factorizations_say_what_they_found():
    spd = poisson(20)
    indefinite = (spd - 0.5 * sp.eye_array(400)).tocsr()
    values = np.linalg.eigvalsh(indefinite.toarray())
    for dtype in (np.float64, np.float32):
        ldl, cholesky, lu = krysp.ldl(indefinite.astype(dtype)), krysp.cholesky(spd.astype(dtype)), krysp.lu(spd.astype(dtype))
        assert ldl.inertia == ((values > 0).sum(), (values < 0).sum(), 0)
        assert cholesky.inertia == (400, 0, 0)
        assert (spd.nnz + 400) / 2 < cholesky.nnz < ldl.nnz * 2 and lu.nnz > spd.nnz
        exact = np.linalg.cond(indefinite.toarray(), 1)
        assert exact / 3 <= ldl.condition_estimate() <= exact * 1.1
        assert cholesky.condition_estimate() == pytest.approx(lu.condition_estimate(), rel=1e-2)
        assert "positive and" in str(ldl) and "multiplications" in str(lu)
        with pytest.raises(AttributeError, match="lu has no inertia"):
            lu.inertia
    assert krysp.splu(spd).nnz == lu.nnz and krysp.splu(sp.csr_array((0, 0))).nnz == 0
    assert not hasattr(krysp.ilu0(spd), "nnz") and str(krysp.ilu0(spd)) == "ilu0"
    with pytest.raises(TypeError, match="ilu0 cannot estimate"):
        krysp.ilu0(spd).condition_estimate()


def test_splu_and_factorized_are_called_as_scipys():
    numbers = np.random.default_rng(5)
    spd = poisson(20)
    upwind = (spd + sp.diags_array([0.9], offsets=[1], shape=spd.shape)).tocsc()
    indefinite = (spd - 0.5 * sp.eye_array(400)).tocsr()
    b = numbers.random((400, 3))
    for a in (spd, upwind, indefinite):
        lu, known = krysp.splu(a, permc_spec="COLAMD", options={}), sp.linalg.splu(a.tocsc())
        assert lu.shape == (400, 400)
        for trans in ("N", "T", "H"):
            np.testing.assert_allclose(lu.solve(b, trans), known.solve(b, trans), rtol=1e-8)
        np.testing.assert_allclose(krysp.factorized(a)(b[:, 0]), known.solve(b[:, 0]), rtol=1e-8)
    with pytest.raises(ValueError, match="'N', 'T', 'H'"):
        lu.solve(b, "X")
    with pytest.raises(TypeError, match="colour"):
        krysp.splu(spd, colour=1)
    with pytest.raises(krysp.KryspError, match="singular"):
        krysp.splu(sp.csr_array((3, 3)))
    with pytest.raises(ValueError, match="2 x 3"):
        krysp.splu(sp.csr_array((2, 3)))


def test_condition_numbers_are_estimated_from_below():
    numbers = np.random.default_rng(11)
    for n in (1, 2, 30):
        a = numbers.standard_normal((n, n)) + np.diag(np.logspace(0, 3, n))
        exact = np.linalg.cond(a, 1)
        for dtype, rounding in ((np.float64, 1e-9), (np.float32, 1e-1)):
            estimate = krysp.splu(sp.csr_array(a.astype(dtype))).condition_estimate()
            assert exact / 3 <= estimate <= exact * (1 + rounding)
    assert krysp.splu(sp.csr_array((0, 0))).condition_estimate() == 1.0
