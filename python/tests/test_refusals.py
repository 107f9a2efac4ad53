"""Arguments that are refused, with messages in the words of the Python interface."""

import krysp
import numpy as np
import pytest
import scipy.sparse as sp
from test_inputs import poisson

A, B = poisson(), np.ones(144)
SINGLE = A.astype(np.float32)


def test_right_hand_sides_that_single_precision_cannot_represent():
    for call in (
        lambda b: krysp.solve(SINGLE, b),
        lambda b: krysp.Plan(SINGLE).solve(b),
        lambda b: krysp.cg(krysp.Operator(SINGLE, "cpu"), b),
    ):
        # of these, the last has one column that would become zero
        for b in (1e-50 * B, 1e-42 * B, 1e100 * B, np.stack([B, 1e-50 * B], axis=1)):
            with pytest.raises(ValueError, match="largest magnitude of .*b is .*single precision"):
                call(b)
        assert call(1e-30 * B).info == 0
        with pytest.raises(ValueError, match="largest magnitude of x0"):
            krysp.Plan(SINGLE).solve(B, x0=1e100 * B)
    # a guess that becomes zero is as good as none, and entries may become zero beside others
    assert krysp.cg(krysp.Operator(SINGLE, "cpu"), B, x0=1e-50 * B).info == 0
    mixed = B.copy()
    mixed[0] = 1e-50
    assert krysp.cg(krysp.Operator(SINGLE, "cpu"), mixed).info == 0
    with pytest.raises(ValueError, match="single precision"):
        krysp.Operator(SINGLE, "cpu").refresh(1e-50 * A)
    assert krysp.cg(A.astype(np.float32), 1e-50 * B).info == 0, "computes in double precision"


@pytest.mark.parametrize("limit", [np.inf, 1e20, 1e300])
def test_long_time_limits_are_no_limits(limit):
    assert krysp.solve(A, B, time_limit=limit).info == 0


def test_numbers_out_of_their_range():
    for name in ("rtol", "time_limit"):
        for value in (-1, np.nan, "a"):
            for call in (krysp.Plan, lambda a, **options: krysp.solve(a, B, **options)):
                with pytest.raises(ValueError, match=f"{name} must be a number that is not negative; got"):
                    call(A, **{name: value})
    # a tolerance of zero is allowed: the solve ends by another rule
    assert krysp.Plan(A, rtol=0.0, maxiter=3).solve(B).info == 3
    for name, call in (
        ("strength", lambda value: krysp.amg(A, strength=value)),
        ("fill", lambda value: krysp.ilut(A, fill=value)),
        ("drop_tolerance", lambda value: krysp.ilut(A, drop_tolerance=value)),
    ):
        with pytest.raises(TypeError, match=f"{name} must be a number; got 'a'"):
            call("a")


COUNTS = {
    "maxiter of cg": ("maxiter", 0, lambda value: krysp.cg(A, B, maxiter=value)),
    "maxiter of gmres": ("maxiter", 0, lambda value: krysp.gmres(A, B, maxiter=value)),
    "restart": ("restart", 1, lambda value: krysp.gmres(A, B, restart=value)),
    "maxiter of a plan": ("maxiter", 0, lambda value: krysp.Plan(A, maxiter=value)),
    "solves": ("solves", 0, lambda value: krysp.Plan(A, solves=value)),
    "sweeps": ("sweeps", 1, lambda value: krysp.amg(A, sweeps=value)),
    "max_coarse_size": ("max_coarse_size", 0, lambda value: krysp.amg(A, max_coarse_size=value)),
    "block": ("block", 1, lambda value: krysp.jacobi(A, block=value)),
}


@pytest.mark.parametrize("count", COUNTS)
def test_counts_are_integers_in_their_range(count):
    name, least, call = COUNTS[count]
    for value in (-1, least - 1):
        with pytest.raises(ValueError, match=f"{name} must be at least {least}; got {value}"):
            call(value)
    for value in (2.5, "a"):
        with pytest.raises(TypeError, match=f"{name} must be an integer; got {value!r}"):
            call(value)
    call(np.int32(2))
    if name in ("maxiter", "restart", "solves"):
        call(10**30)


def test_fields_components_and_coordinates():
    for value in (-1, 144):
        with pytest.raises(ValueError, match=rf"fields must be integers from 0 to 143; unknown 0 has {value}"):
            krysp.Plan(A, fields=np.full(144, value))
    for value in (-1, 2, 256):
        with pytest.raises(ValueError, match=rf"fields must be integers from 0 to 1; unknown 3 has {value}"):
            krysp.saddle_point(A, fields=np.where(np.arange(144) == 3, value, 0))
    with pytest.raises(ValueError, match=r"fields must have shape \(144,\)"):
        krysp.saddle_point(A, fields=np.zeros(3, int))
    with pytest.raises(ValueError, match=r"components must be integers from 0 to 2; unknown 0 has -1"):
        krysp.Plan(A, coordinates=np.random.default_rng(0).random((144, 2)), components=np.full(144, -1))
    with pytest.raises(ValueError, match=r"coordinates must differ: all 72 points are at \[1.0, 1.0\]"):
        krysp.Plan(A, coordinates=np.ones((72, 2)))


def test_objects_of_a_wrong_kind_are_called_by_their_argument():
    for m, got in ((krysp.splu(A), "Factors"), (krysp.Plan(A), "Plan"), ("jacobi", "'jacobi'")):
        with pytest.raises(TypeError, match=rf"M must be a preconditioner of krysp, .*; got .*{got}"):
            krysp.cg(A, B, M=m)
    with pytest.raises(TypeError, match=r"M must be sparse; got a dense matrix: `scipy.sparse.csr_array\(M\)`"):
        krysp.cg(A, B, M=A.toarray())
    sparse = sp.csr_array(B[:, None])
    for call in (krysp.solve, krysp.cg, krysp.gmres, lambda a, b: krysp.splu(a).solve(b), lambda a, b: krysp.factorized(a)(b)):
        with pytest.raises(TypeError, match=r"(b|rhs) must be dense; got a sparse matrix or array: pass `(b|rhs).toarray\(\)`"):
            call(A, sparse)


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("call", [krysp.cg, krysp.gmres, krysp.solve, lambda a, b: krysp.jacobi(a)])
def test_invalid_indices_are_reported_as_they_are(index, call):
    def changed(position, column):
        a = A.copy()
        a.indices, a.indptr = a.indices.astype(index), a.indptr.astype(index)
        (a.indices if column else a.indptr)[position] = -1 if column else 10**6
        return a

    with pytest.raises(ValueError, match="entry 3 has column -1, but the matrix has 144 columns"):
        call(changed(3, True), B)
    with pytest.raises(ValueError, match="offset 5 is 1000000: offsets must start at 0"):
        call(changed(5, False), B)


def test_files_of_another_kind_name_the_function_that_loads_them(tmp_path):
    for dtype, element in ((np.float64, "f64"), (np.float32, "f32")):
        a = A.astype(dtype)
        krysp.Plan(a, "cpu").save(tmp_path / "plan")
        krysp.Operator(a, "cpu").save(tmp_path / "operator")
        with pytest.raises(krysp.KryspError, match=rf"holds a plan of {element}.*`krysp.Plan.load\(path, A\)`"):
            krysp.Operator.load(tmp_path / "plan", "cpu")
        with pytest.raises(krysp.KryspError, match=rf"holds a matrix of {element}.*`krysp.Operator.load\(path\)`"):
            krysp.Plan.load(tmp_path / "operator", a, "cpu")


def test_new_values_need_a_matrix_of_the_same_shape():
    for solver in (krysp.Operator(A, "cpu"), krysp.Plan(A, "cpu"), krysp.jacobi(A)):
        with pytest.raises(ValueError, match="the matrix must be 144 x 144.*got 121 x 121"):
            solver.refresh(poisson(11))


def test_advice_is_in_the_words_of_python():
    assert "`symmetric=True`" in krysp.Operator(A, "cpu").choice
    assert "Operator::" not in krysp.Operator(A, "cpu").choice


def test_devices_have_the_names_of_the_program():
    for name in ("CPU", "cpu"):
        assert krysp.Operator(A, name).device == "cpu" and krysp.Plan(A, name).device == "cpu"
    assert krysp._operator.place("gpu") == "cuda:0" and krysp._operator.place("GPU:1") == "cuda:1"
    with pytest.raises(ValueError, match='device must be "cpu", "cuda" .*; got \'tpu\''):
        krysp.Operator(A, "tpu")
