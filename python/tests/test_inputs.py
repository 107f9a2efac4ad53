"""Accepted and rejected types of matrices, vectors and preconditioners."""

import krysp
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, aslinearoperator

METHODS = [krysp.cg, krysp.fcg, krysp.minres, krysp.bicgstab, krysp.idr, krysp.gmres, krysp.fgmres]


def poisson(n: int = 12):
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    return sp.kronsum(line, line, format="csr")


def unsorted(a):
    """The same matrix with unsorted rows, in which every entry is split into two halves (duplicates)."""
    a = a.tocsr()
    rows = [slice(a.indptr[i], a.indptr[i + 1]) for i in range(a.shape[0])]
    indices = np.concatenate([np.tile(a.indices[row][::-1], 2) for row in rows])
    data = np.concatenate([np.tile(a.data[row][::-1] / 2, 2) for row in rows])
    return sp.csr_array((data, indices, 2 * a.indptr), shape=a.shape)


def with_long_indices(a):
    a = a.copy()
    a.indices, a.indptr = a.indices.astype(np.int64), a.indptr.astype(np.int64)
    return a


FORMS = {
    "csr": lambda a: a,
    "csr_matrix": sp.csr_matrix,
    "csc": sp.csc_array,
    "coo": sp.coo_array,
    "bsr": lambda a: sp.bsr_array(a, blocksize=(2, 2)),
    "dia": sp.dia_array,
    "lil": sp.lil_array,
    "unsorted": unsorted,
    "int64": with_long_indices,
    "integers": lambda a: a.astype(int),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", METHODS)
def test_every_form_of_a_matrix_is_solved(form, method):
    a, b = poisson(), np.arange(144.0)
    given = FORMS[form](a)
    for matrix in (given, krysp.Operator(given, "cpu")):
        x, info = method(matrix, b, rtol=1e-10)
        assert info == 0
        assert np.linalg.norm(a @ x - b) <= 1e-10 * np.linalg.norm(b)
        assert np.all(b == np.arange(144.0))


def test_an_unsymmetric_matrix_in_columns_is_not_taken_for_its_transpose():
    a = sp.csc_array([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [0.0, 0.0, 4.0]])
    b = np.array([1.0, 2.0, 3.0])
    for matrix in (a, krysp.Operator(a, "cpu")):
        np.testing.assert_allclose(a @ krysp.gmres(matrix, b, rtol=1e-12).x, b)


@pytest.mark.parametrize("method", METHODS)
def test_single_precision_stays_single(method):
    a, b = poisson().astype(np.float32), np.ones(144, np.float32)
    x, info = method(a, b, rtol=1e-4)
    assert info == 0 and x.dtype == np.float32
    assert method(a, b.astype(float), rtol=1e-4).x.dtype == np.float64
    x, info = method(krysp.Operator(a, "cpu"), b, rtol=1e-4)
    assert info == 0 and x.dtype == np.float32


def test_values_of_scipy_are_read_where_they_are():
    a, b = poisson(), np.ones(144)
    assert np.shares_memory(krysp._input.rows(a, np.dtype(float))[3], a.data)

    def change(x):
        a.data[:] = np.nan

    assert krysp.cg(a, b, callback=change).info == -1


PRECONDITIONERS = ["jacobi", "ilu0", "ilut", "ic0", "fsai", "spai", "two_level", "amg", "lu", "ldl", "cholesky"]


@pytest.mark.parametrize("name", PRECONDITIONERS)
def test_preconditioners_save_iterations_and_take_new_values(name):
    a, b = poisson(30), np.ones(900)
    make = getattr(krysp, name)
    method = krysp.gmres if name in ("ilu0", "ilut", "spai", "lu", "ldl") else krysp.cg
    plain = method(a, b, rtol=1e-8).report.iterations
    for matrix in (a, krysp.Operator(a, "cpu")):
        m = make(matrix)
        result = method(matrix, b, M=m, rtol=1e-8)
        assert result.info == 0
        # Jacobi: the diagonal is constant; two-level: the matrix is too small for a coarse space
        if name not in ("jacobi", "two_level"):
            assert result.report.iterations < 0.9 * plain
        before = m @ b
        m.refresh(2.0 * a)
        np.testing.assert_allclose(m @ b, before / 2.0, rtol=1e-5)
    assert "krysp." in repr(m) and str(m)


def test_reordered_operators_take_and_return_vectors_in_the_ordering_of_the_user():
    order = np.random.default_rng(8).permutation(80 * 80)
    a, b = poisson(80)[order][:, order].tocsr(), np.arange(6400.0)
    operator = krysp.Operator(a, "cpu", reorder=True)
    np.testing.assert_allclose(operator @ b, a @ b)
    m = krysp.ic0(operator)
    for k in (1.0, 3.0):
        operator.refresh(k * a.data)
        m.refresh(operator)
        x, info = krysp.cg(operator, b, x0=np.ones(6400), M=m, rtol=1e-10)
        assert info == 0 and np.linalg.norm(k * (a @ x) - b) <= 1.1e-10 * np.linalg.norm(b)
    # M may be in the ordering of the user, as b is
    inverse = sp.diags_array(1.0 / a.diagonal(), format="csr")
    operator.refresh(a.data)
    own = krysp.cg(operator, b, M=krysp.ic0(a))
    for m in (None, inverse, lambda r: r / a.diagonal(), krysp.ic0(a), krysp.jacobi(operator)):
        for method in (krysp.cg, krysp.gmres, krysp.minres):
            x, info = method(operator, b, M=m)
            assert info == 0 and np.linalg.norm(a @ x - b) <= 1e-5 * np.linalg.norm(b), method
    assert own.report.iterations < 0.5 * krysp.cg(operator, b).report.iterations
    with pytest.raises(ValueError, match="host memory"):
        krysp.Operator(a, "cuda:0", reorder=True)


def test_preconditioners_may_come_from_elsewhere():
    a, b = poisson(), np.ones(144)
    diagonal = a.diagonal()
    inverse = sp.diags_array(1.0 / diagonal, format="csr")
    ours = krysp.jacobi(a)
    function = lambda r: r / diagonal  # noqa: E731
    given = [ours, inverse, krysp.Operator(inverse, "cpu"), aslinearoperator(inverse), function]
    given.append(LinearOperator(a.shape, matvec=function))
    counts = {krysp.cg(a, b, M=m, rtol=1e-10).report.iterations for m in given}
    assert len(counts) == 1
    # krysp's operators and preconditioners work in SciPy's solvers
    x, info = sp.linalg.cg(krysp.Operator(a, "cpu"), b, M=ours, rtol=1e-10)
    assert info == 0
    np.testing.assert_allclose(a @ x, b, rtol=1e-6)


def test_functions_are_operators():
    a, b = poisson(), np.ones(144)
    for given in (aslinearoperator(a), lambda x: a @ x):
        x, info = krysp.cg(given, b, rtol=1e-10)
        assert info == 0
        np.testing.assert_allclose(a @ x, b, atol=1e-8)


def test_exceptions_of_functions_end_the_solve():
    def fails(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        krysp.cg(fails, np.ones(3))
    with pytest.raises(KeyError, match="mine"):
        krysp.cg(poisson(), np.ones(144), M=fails)
    with pytest.raises(ValueError, match="must return 3 entries; got 2"):
        krysp.cg(lambda x: x[:2], np.ones(3))
    with pytest.raises(KeyError, match="mine"):
        krysp.cg(poisson(), np.ones(144), callback=fails)


def test_misuse_is_refused_in_words():
    a, b = poisson(), np.ones(144)
    for dense in (a.toarray(), a.toarray().tolist()):
        with pytest.raises(TypeError, match=r"csr_array\(A\)"):
            krysp.cg(dense, b)
        with pytest.raises(TypeError, match=r"csr_array\(A\)"):
            krysp.Operator(dense)
    with pytest.raises(ValueError, match="complex"):
        krysp.cg(a.astype(complex), b)
    with pytest.raises(ValueError, match="complex"):
        krysp.cg(a, b.astype(complex))
    with pytest.raises(ValueError, match="b must have 144 entries, to match the matrix; got 3"):
        krysp.cg(a, np.ones(3))
    with pytest.raises(ValueError, match="x0 must have 144 entries"):
        krysp.cg(a, b, x0=np.ones(3))
    for call in (krysp.cg, krysp.gmres, krysp.solve, krysp.spsolve):
        with pytest.raises(ValueError, match=r"b must have shape \(144,\) or \(144, k\) with k of 1 or more; got \(8, 144\)"):
            call(a, np.ones((8, 144)))
    with pytest.raises(ValueError, match="square"):
        krysp.cg(a[:10], np.ones(10))
    with pytest.raises(ValueError, match="preconditioner"):
        krysp.cg(a, b, M=krysp.jacobi(poisson(3)))
    with pytest.raises(ValueError, match="atol"):
        krysp.cg(a, b, atol=-1.0)
    with pytest.raises(ValueError, match="rtol must be .*; got nan"):
        krysp.cg(a, b, rtol=np.nan)
    assert krysp.cg(a, b, rtol=np.float32(1e-3), atol=np.int64(0)).info == 0
    with pytest.raises(ValueError, match=r"near_null_space must have shape \(144,\) or \(144, k\); got \(5,\)"):
        krysp.amg(a, near_null_space=np.ones(5))
    with pytest.raises(ValueError, match="device"):
        krysp.Operator(a, "tpu")
    with pytest.raises(ValueError, match="values"):
        krysp.Operator(a, "cpu").refresh(np.ones(3))
    with pytest.raises(krysp.KryspError, match="row 0 has 0 on the diagonal"):
        krysp.jacobi(sp.csr_array([[0.0, 1.0], [1.0, 0.0]]))
    broken = a.copy()
    broken.indices[5] = -1
    with pytest.raises(ValueError, match="entry 5 has column"):
        krysp.cg(broken, b)
    broken.indices[5] = 144
    with pytest.raises(ValueError, match="entry 5 has column 144"):
        krysp.Operator(broken)
    broken = a.copy()
    broken.indptr[3] = 10**6
    with pytest.raises(ValueError, match="offset 3 is 1000000"):
        krysp.cg(broken, b)


def test_vectors_may_have_a_column_and_lie_apart():
    a = poisson()
    wide = np.ones((144, 2))
    for b in (wide[:, :1], wide[:, 0], np.ones(144, int), [1.0] * 144):
        x, info = krysp.cg(a, b, rtol=1e-10)
        assert info == 0 and x.shape == (144,)


def test_operators_multiply_and_take_new_values():
    a = sp.coo_array(unsorted(poisson()))
    operator = krysp.Operator(a, "cpu")
    x = np.random.default_rng(1).random((144, 3))
    np.testing.assert_allclose(operator @ x, a @ x)
    operator.refresh(3.0 * a.data)
    np.testing.assert_allclose(operator @ x[:, 0], 3.0 * (a @ x[:, 0]))
    assert "stream" in operator.choice and "<pre>" in operator.choice._repr_html_()
    assert operator.nbytes > 0 and "float64, cpu" in repr(operator)
    symmetric = krysp.Operator(poisson(), "cpu", symmetric=True)
    np.testing.assert_allclose(symmetric @ x, poisson() @ x)
    with pytest.raises(ValueError, match="not symmetric"):
        krysp.Operator(sp.csr_array([[1.0, 2.0], [0.0, 1.0]]), "cpu", symmetric=True)


def test_operators_are_saved_and_loaded(tmp_path):
    order = np.random.default_rng(10).permutation(1600)
    a, b, path = poisson(40)[order][:, order].tocsr(), np.arange(1600.0), tmp_path / "a.krysp"
    for dtype in (np.float64, np.float32):
        given = a.astype(dtype)
        for options in ({}, {"symmetric": True}, {"reorder": True}):
            saved = krysp.Operator(given, "cpu", **options)
            saved.save(path)
            loaded = krysp.Operator.load(path, "cpu")
            assert loaded.dtype == dtype and loaded.shape == a.shape and loaded.choice == saved.choice
            np.testing.assert_array_equal(loaded @ b, saved @ b)
            loaded.refresh(2.0 * given.data)
            rtol = 1e-10 if dtype == np.float64 else 1e-4
            x, info = krysp.cg(loaded, b.astype(dtype), M=krysp.ic0(loaded), rtol=rtol)
            assert info == 0 and np.linalg.norm(2.0 * (a @ x) - b) <= 1.01 * rtol * np.linalg.norm(b)
    wide = krysp.Operator(a[:10], "cpu")
    wide.save(path)
    assert krysp.Operator.load(path, "cpu").shape == (10, 1600)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(krysp.KryspError, match="were saved"):
        krysp.Operator.load(path, "cpu")
    krysp.Plan(a, "cpu").save(path)
    with pytest.raises(krysp.KryspError, match="a plan of f64"):
        krysp.Operator.load(path, "cpu")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        krysp.Operator.load(tmp_path / "nowhere", "cpu")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        krysp.Plan.load(tmp_path / "nowhere", a, "cpu")
    for saved in (krysp.Operator(a, "cpu"), krysp.Plan(a, "cpu")):
        with pytest.raises(FileNotFoundError, match="nowhere"):
            saved.save(tmp_path / "nowhere" / "a.krysp")


def test_rigid_body_modes_are_the_modes_of_elasticity():
    points = np.random.default_rng(2).random((7, 3))
    modes = krysp.rigid_body_modes(points)
    assert modes.shape == (21, 6)
    np.testing.assert_allclose(modes.reshape(7, 3, 6)[:, 0, 0], 1.0)
    with pytest.raises(ValueError, match="points must all have two coordinates"):
        krysp.rigid_body_modes(np.ones((4, 1)))


def test_empty_systems_are_solved():
    x, info = krysp.cg(sp.csr_array((0, 0)), np.ones(0))
    assert info == 0 and x.shape == (0,)


def shuffled_rows():
    """A CSR matrix with unsorted column indices and one duplicate entry."""
    return sp.csr_array((np.array([-1.0, 1.5, 0.5, 2.0, -1.0]), [1, 0, 0, 1, 0], [0, 3, 5]), shape=(2, 2))


@pytest.mark.parametrize("make", [lambda a: krysp.Operator(a, "cpu"), lambda a: krysp.Plan(a, "cpu", values_change=True)])
def test_refresh_takes_values_in_the_order_of_data_or_a_matrix_in_any(make):
    def image(solver):
        return solver @ [1.0, 3.0] if isinstance(solver, krysp.Operator) else solver.solve([1.0, 0.0]).x

    for given in (shuffled_rows(), shuffled_rows().tocoo(), sp.csc_array(shuffled_rows())):
        expected = image(make(2.0 * shuffled_rows().tocsc()))
        solver = make(given)
        solver.refresh(2.0 * given.data)
        np.testing.assert_allclose(image(solver), expected)
        solver.refresh(given.data)
        solver.refresh(np.repeat(2.0 * given.data, 2)[::2])  # a strided view
        np.testing.assert_allclose(image(solver), expected)
        for other in (shuffled_rows(), shuffled_rows().tocsc(), shuffled_rows().tocoo()):
            solver.refresh(given.data)
            solver.refresh(2.0 * other)
            np.testing.assert_allclose(image(solver), expected)
        solver.refresh(given.data)
        with pytest.raises(ValueError, match="row 1 has a different sparsity pattern"):
            solver.refresh(sp.csr_array([[2.0, -1.0], [0.0, 2.0]]))
        with pytest.raises(ValueError, match=r"values must have \d entries.*got 9"):
            solver.refresh(np.ones(9))
        with pytest.raises(ValueError, match=r"complex.*\.real"):
            solver.refresh(given.data + 0j)
        with pytest.raises(ValueError, match=r"entry \(.*\) is NaN"):
            solver.refresh(np.full(len(given.data), np.nan))
        np.testing.assert_allclose(2.0 * image(solver) if isinstance(solver, krysp.Operator) else image(solver) / 2.0, expected)


def test_complex_values_are_refused_wherever_they_enter():
    a, b = poisson(), np.ones(144)
    for call in (
        lambda: krysp.cg(a, b + 0j),
        lambda: krysp.cg(a, b, x0=b + 0j),
        lambda: krysp.cg(a, b, M=lambda r: r + 0j),
        lambda: krysp.cg(a + 0j * a, b),
        lambda: krysp.Operator(a, "cpu") @ (b + 0j),
        lambda: krysp.amg(a, near_null_space=np.ones((144, 1)) + 0j),
        lambda: krysp.rigid_body_modes(np.ones((3, 2)) + 0j),
        lambda: krysp.Plan(a, "cpu").solve(b + 0j),
    ):
        with pytest.raises(ValueError, match="complex"):
            call()


@pytest.mark.parametrize("make", [lambda a: krysp.Operator(a, "cpu"), lambda a: krysp.Plan(a, "cpu")])
@pytest.mark.parametrize("given", ["bsr", "dia", "lil"])
def test_refresh_refuses_values_of_formats_whose_order_is_another(make, given):
    a = poisson().asformat(given)
    solver = make(a)
    with pytest.raises(TypeError, match=rf"{given.upper()}.*refresh\(A\)"):
        solver.refresh(np.ones(poisson().nnz))
    solver.refresh(2.0 * a)
    if isinstance(solver, krysp.Operator):
        np.testing.assert_allclose(solver @ np.ones(144), 2.0 * (poisson() @ np.ones(144)))
    else:
        x = solver.solve(np.ones(144)).x
        np.testing.assert_allclose(2.0 * (poisson() @ x), np.ones(144), rtol=1e-6)


def test_a_preconditioner_is_refreshed_with_a_matrix():
    a = poisson()
    with pytest.raises(TypeError, match=r"refresh\(A\)"):
        krysp.jacobi(a).refresh(a.data)


def test_the_error_for_refreshing_a_preconditioner_of_a_reordered_operator_says_how_to(tmp_path):
    made = krysp.Operator(poisson(), "cpu", reorder=True)
    made.save(tmp_path / "operator")
    for op in (made, krysp.Operator.load(tmp_path / "operator", "cpu")):
        m = krysp.ilu0(op)
        with pytest.raises(TypeError, match="reordered operator"):
            m.refresh(2.0 * poisson())
        op.refresh(2.0 * poisson())
        m.refresh(op)
        assert krysp.bicgstab(op, np.ones(144), M=m).info == 0
