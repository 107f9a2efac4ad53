"""What reports say of systems whose numbers differ from what a user sees: null spaces, and scaled right-hand sides."""

import pickle

import krysp
import numpy as np
import pytest
from test_inputs import METHODS, poisson
from test_spsolve import neumann


def test_a_report_has_what_was_removed_with_the_null_space():
    a, b = neumann(30, 30), np.random.default_rng(0).random(900)
    constant = np.full(900, b.mean())
    for result in (krysp.solve(a, b, device="cpu", null_space="constant"), krysp.Plan(a, "cpu", null_space="constant").solve(b)):
        report = result.report
        assert result.info == 0 and report.converged
        np.testing.assert_allclose(report.removed, np.linalg.norm(constant))
        np.testing.assert_allclose(report.rhs_norm, np.linalg.norm(b - constant))
        r = np.linalg.norm(b - constant - a @ result.x)
        assert r <= 1e-8 * np.linalg.norm(b - constant)
        np.testing.assert_allclose(np.hypot(r, report.removed), np.linalg.norm(b - a @ result.x))
        assert "a component of norm 1.5" in str(report) and "87.52 % of norm(b), was removed from `b`" in str(report)
        assert "removed from `b`" in report._repr_html_()
        assert pickle.loads(pickle.dumps(report)).removed == report.removed
    several = krysp.solve(a, np.stack([b, b - constant], axis=1), device="cpu", null_space="constant")
    assert several.reports[0].removed > 10.0 and several.reports[1].removed < 1e-10


def test_a_report_is_silent_where_nothing_was_removed():
    a = neumann(30, 30)
    for report in (
        krysp.cg(poisson(), np.ones(144)).report,
        krysp.solve(a, a @ np.arange(900.0), device="cpu", null_space="constant").report,
    ):
        assert "removed" not in str(report) and "null space" not in report._repr_html_()
    assert krysp.cg(poisson(), np.ones(144)).report.removed == 0.0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("factor", [1e-308, 1e-200, 1e-158, 1e-130, 1e130, 1e158, 1e200])
def test_right_hand_sides_whose_squares_are_no_numbers(method, factor):
    a, numbers = poisson(20), np.random.default_rng(1)
    b, guess = numbers.random(400), numbers.random(400)
    seen: list = []
    options = {"callback_type": "x"} if method in (krysp.gmres, krysp.fgmres) else {}
    for result in (
        method(a, factor * b, rtol=1e-8),
        method(krysp.Operator(a, "cpu"), factor * b, x0=factor * guess, rtol=1e-8),
        method(a, factor * b, rtol=1e-8, M=krysp.jacobi(a), callback=seen.append, **options),
        method(a, factor * np.stack([b, guess], axis=1), rtol=1e-8),
        method(a, factor * b, rtol=0.0, atol=1e-8 * factor * np.linalg.norm(b)),
    ):
        first = result.x if result.x.ndim == 1 else result.x[:, 0]
        report = result.reports[0]
        assert result.info == 0
        # numbers near 1e-308 have fewer digits
        accuracy = 1e-8 if factor > 1e-300 else 1e-5
        assert np.linalg.norm(b - a @ (first / factor)) <= 1.01 * accuracy * np.linalg.norm(b)
        if factor > 1e-300:
            np.testing.assert_allclose(report.rhs_norm / factor, np.linalg.norm(b))
            np.testing.assert_allclose(report.tolerance, 1e-8 * report.rhs_norm)
            assert 0.0 < report.true_residual <= report.tolerance and report.history[-1] < 1e-7 * report.history[0]
        assert 0.0 < report.relative_residual <= 1e-8
    assert np.linalg.norm(b - a @ (seen[-1] / factor)) <= 1e-4 * np.linalg.norm(b)


def test_single_precision_is_scaled_too():
    a, b = poisson(20).astype(np.float32), np.random.default_rng(1).random(400).astype(np.float32)
    for factor in (1e-36, 1e-25, 1e-15, 1e20, 1e37):
        result = krysp.cg(a, np.float32(factor) * b, rtol=1e-4)
        x = result.x.astype(float) / factor
        assert result.info == 0 and np.linalg.norm(b - a @ x) <= 2e-4 * np.linalg.norm(b)


def test_zero_and_infinity_are_not_scaled():
    assert krysp.cg(poisson(), np.zeros(144)).info == 0
    for value in (np.inf, np.nan):
        result = krysp.cg(poisson(), np.full(144, value))
        assert result.info == -1 and "not finite" in result.report.outcome
