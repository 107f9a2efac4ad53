"""Objects that can be pickled and copied, as pools of processes require, and the advice in the errors of all others."""

import copy
import multiprocessing
import pickle

import krysp
import numpy as np
import pytest
import scipy.sparse as sp
from test_inputs import poisson


def both(value):
    return pickle.loads(pickle.dumps(value)), copy.deepcopy(value)


def test_results_and_reports_pickle_and_copy():
    a, b = poisson(), np.arange(144.0)
    singular = sp.csr_array([[1.0, 1.0], [1.0, 1.0]])
    results = [
        krysp.cg(a, b),
        krysp.cg(a, b, maxiter=2),
        krysp.gmres(singular, np.array([1.0, 0.0])),
        krysp.cg(a.astype(np.float32), b.astype(np.float32), rtol=1e-12),
        krysp.solve(a, b, device="cpu"),
    ]
    for result in results:
        for again in both(result):
            assert type(again) is krysp.Result and again.info == result.info
            x, info = again
            assert x is again.x and x.dtype == result.x.dtype
            np.testing.assert_array_equal(x, result.x)
            assert str(again.report) == str(result.report)
            names = [name for name in dir(krysp.Report) if not name.startswith("_") and name != "plot"]
            for name in names:
                np.testing.assert_array_equal(getattr(again.report, name), getattr(result.report, name))
            assert again.report._repr_html_() == result.report._repr_html_()
    with pytest.raises(TypeError, match="created by solves"):
        krysp.Report({})


def test_a_result_comes_back_from_a_worker():
    a, b = poisson(), np.arange(144.0)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        result = pool.apply(krysp.cg, (a, b))
    assert result.info == 0 and result.report.converged


def test_descriptions_of_plans_pickle_and_copy():
    operator, plan = krysp.Operator(poisson(), "cpu"), krysp.Plan(poisson(), "cpu")
    for text in (operator.choice, str(plan)):
        assert both(text) == (text, text)


def test_operators_pickle_through_their_saved_form():
    order = np.random.default_rng(10).permutation(144)
    a, b = poisson()[order][:, order].tocsr(), np.arange(144.0)
    for dtype in (np.float64, np.float32):
        for options in ({}, {"symmetric": True}, {"reorder": True}):
            operator = krysp.Operator(a.astype(dtype), "cpu", **options)
            operator.refresh(2.0 * a.data)
            for again in both(operator):
                assert again.dtype == dtype and again.device == "cpu" and again.choice == operator.choice
                np.testing.assert_array_equal(again @ b, operator @ b)
                again.refresh(4.0 * a.data)
                np.testing.assert_allclose(again @ b, 2.0 * (operator @ b), rtol=1e-6)


def test_what_does_not_pickle_says_what_to_do():
    a = poisson()
    with pytest.raises(TypeError, match=r"build it in each process, `krysp\.amg\(A\)`"):
        pickle.dumps(krysp.amg(a))
    with pytest.raises(TypeError, match=r"`plan\.save\(path\)`"):
        pickle.dumps(krysp.Plan(a, "cpu"))


def test_there_is_no_transpose_where_none_works():
    a, b = poisson(), np.ones(144)
    for operator, instead in ((krysp.Operator(a, "cpu"), r"krysp\.Operator\(A\.T\)"), (krysp.lu(a), r"krysp\.lu\(A\.T\)")):
        assert not hasattr(operator, "T") and not hasattr(operator, "H")
        with pytest.raises(AttributeError, match=instead):
            operator.T @ b
        for call in (operator.transpose, operator.adjoint):
            with pytest.raises(NotImplementedError, match=instead):
                call()
        for call, given in ((operator.rmatvec, b), (operator.rmatmat, np.ones((144, 2)))):
            with pytest.raises(NotImplementedError, match=instead):
                call(given)


def test_operators_are_readable_in_notebooks():
    operator = krysp.Operator(poisson(), "cpu")
    shown = operator._repr_html_()
    for value in ("<caption>krysp.Operator</caption>", "144 x 144", "float64", "cpu", "DIA"):
        assert value in shown
