"""Block preconditioners of saddle point systems."""

import numpy as np
import pytest
import scipy.sparse as sp

import krysp


def system(n=30):
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    a = sp.kronsum(line, line, format="csr")
    b = sp.diags_array([1.0, -1.0], offsets=[0, 1], shape=(n * n // 2, n * n))
    return sp.block_array([[a, b.T], [b, None]], format="csr")


@pytest.mark.parametrize("schur", [None, "diagonal", "sparse", "lsc", "given"])
def test_every_approximation_solves_and_takes_new_values(schur):
    a = system()
    b = a @ np.arange(a.shape[0])
    m = krysp.saddle_point(a, sp.eye_array(450) if schur == "given" else schur)
    result = krysp.fgmres(a, b, M=m, rtol=1e-8)
    assert result.info == 0
    assert "block triangular" in str(m) and "450 unknowns" in str(m)
    m.refresh(2.0 * a)
    if schur != "given":
        np.testing.assert_allclose(m @ b, krysp.saddle_point(2.0 * a, schur) @ b, rtol=1e-6, atol=1e-6)


def test_fields_can_be_given_and_the_diagonal_form_suits_minres():
    a = system()
    found = krysp.saddle_point(a, block_diagonal=True)
    given = krysp.saddle_point(a, fields=np.arange(a.shape[0]) >= 900, block_diagonal=True)
    b = np.ones(a.shape[0])
    np.testing.assert_array_equal(found @ b, given @ b)
    assert krysp.minres(a, b, M=found, rtol=1e-8).info == 0


def test_what_is_wrong_is_said():
    a = system(10)
    with pytest.raises(krysp.KryspError, match="all diagonal entries are positive"):
        krysp.saddle_point(sp.eye_array(5, format="csr"))
    with pytest.raises(ValueError, match='"lsc"'):
        krysp.saddle_point(a, "simple")
    with pytest.raises(krysp.KryspError, match="3 rows"):
        krysp.saddle_point(a, sp.eye_array(3))
