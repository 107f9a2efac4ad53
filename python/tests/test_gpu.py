"""Solves on a GPU, with vectors of NumPy, CuPy and PyTorch. Without a GPU, pytest reports the tests as skipped."""

import time
from concurrent.futures import ThreadPoolExecutor

import krysp
import numpy as np
import pytest
import scipy.sparse as sp
from test_inputs import METHODS, poisson

pytestmark = pytest.mark.skipif(not krysp.devices(), reason="no CUDA device on this machine")


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("method", METHODS)
def test_methods(method, dtype):
    a, b = poisson(60).astype(dtype), np.random.default_rng(1).random(3600).astype(dtype)
    rtol = 1e-10 if dtype == np.float64 else 1e-3
    operator = krysp.Operator(a, "cuda:0")
    for m in (None, krysp.jacobi(operator)):
        x, info = method(operator, b, M=m, rtol=rtol)
        assert info == 0 and x.dtype == dtype
        assert np.linalg.norm(b - a @ x) <= rtol * np.linalg.norm(b) * (1.0 + (1e-6 if rtol < 1e-6 else 0.1))


@pytest.mark.parametrize("name", ["jacobi", "fsai", "spai", "two_level", "amg"])
def test_preconditioners(name):
    a, b = poisson(60), np.ones(3600)
    operator = krysp.Operator(a, "cuda:0")
    m = getattr(krysp, name)(operator)
    method = krysp.gmres if name == "spai" else krysp.cg
    assert method(operator, b, M=m, rtol=1e-8).info == 0
    np.testing.assert_allclose(m @ b, getattr(krysp, name)(a) @ b, rtol=1e-6, atol=1e-8)
    operator.refresh(2.0 * a.data)
    m.refresh(operator)
    np.testing.assert_allclose(2.0 * (a @ method(operator, b, M=m, rtol=1e-10).x), b, rtol=1e-6, atol=1e-8)
    with pytest.raises(TypeError, match="built from that operator"):
        krysp.cg(operator, b, M=krysp.jacobi(a))
    with pytest.raises(ValueError, match="not available on a GPU"):
        krysp.ilu0(operator)


def test_cudss():
    a, b = poisson(60), np.ones(3600)
    operator = krysp.Operator(a, "cuda:0")
    try:
        m = krysp.cudss(operator)
    except krysp.KryspError as error:
        assert "nvidia-cudss" in str(error)
        pytest.skip("cuDSS is not installed")
    assert "cuDSS" in str(m)
    assert krysp.gmres(operator, b, M=m, rtol=1e-10).report.iterations <= 3
    operator.refresh(2.0 * a.data)
    m.refresh(operator)
    np.testing.assert_allclose(2.0 * (a @ (m @ b)), b, rtol=1e-8, atol=1e-8)


def test_callbacks():
    a, b, seen = poisson(60), np.ones(3600), []
    operator = krysp.Operator(a, "cuda:0")
    result = krysp.cg(operator, b, rtol=1e-8, callback=lambda x: seen.append(np.linalg.norm(b - a @ x)))
    assert len(seen) == result.report.iterations
    np.testing.assert_allclose(seen, result.report.history[1:], rtol=1e-3, atol=1e-8)


def test_plans():
    a, b = poisson(60), np.random.default_rng(2).random(3600)
    x, info = krysp.solve(a, b, device="cuda:0")
    assert info == 0 and np.linalg.norm(b - a @ x) <= 1e-8 * np.linalg.norm(b) * (1.0 + 1e-6)


@pytest.mark.parametrize("name", ["cupy", "torch"])
def test_columns_on_the_gpu(name):
    library = pytest.importorskip(name)
    a, b = poisson(30), np.random.default_rng(4).random((900, 3))
    given = library.asarray(b) if name == "cupy" else library.from_numpy(b).to("cuda:0")
    operator = krysp.Operator(a, "cuda:0")
    for result in (krysp.cg(operator, given), krysp.cg(a, given), krysp.solve(a, given, device="cuda:0")):
        assert tuple(result.x.shape) == (900, 3) and type(result.x) is type(given)
        assert result.info == 0 and len(result.reports) == 3


def test_later_calls_do_not_pay_for_the_gpu_again():
    a, b = poisson(32), np.ones(1024)
    krysp.solve(a, b, device="cuda:0")
    seconds = []
    for _ in range(10):
        started = time.perf_counter()
        assert krysp.solve(a, b, device="cuda:0").info == 0
        seconds.append(time.perf_counter() - started)
    # creating a context alone takes more than 0.1 s, the solve 2 ms
    assert min(seconds) < 0.05, seconds


def test_vectors_of_cupy():
    cupy = pytest.importorskip("cupy")
    csr_matrix = pytest.importorskip("cupyx.scipy.sparse").csr_matrix
    a, b = poisson(60), np.random.default_rng(3).random(3600)
    operator = krysp.Operator(a, "cuda:0")
    m = krysp.jacobi(operator)
    for given in (cupy.asarray(b), cupy.asarray(b)[:, None], cupy.asarray(np.repeat(b, 2))[::2]):
        x, info = krysp.cg(operator, given, M=m, rtol=1e-10)
        assert isinstance(x, cupy.ndarray) and x.shape == (3600,) and info == 0
        np.testing.assert_allclose(a @ x.get(), b, rtol=1e-6, atol=1e-8)
    again = krysp.cg(operator, cupy.asarray(b), x0=x, M=m, rtol=1e-10)
    assert again.info == 0 and again.report.iterations <= 1
    np.testing.assert_array_equal(b, cupy.asarray(b).get())
    x, info = krysp.cg(csr_matrix(sp.csr_matrix(a)), cupy.asarray(b), rtol=1e-10)
    assert isinstance(x, cupy.ndarray) and info == 0
    seen = []
    krysp.cg(operator, cupy.asarray(b), callback=seen.append)
    assert seen and all(isinstance(x, cupy.ndarray) for x in seen)
    with pytest.raises(ValueError, match="b must have 3600 entries"):
        krysp.cg(operator, cupy.ones(7))


def test_memory_of_one_solve_serves_the_next():
    cupy = pytest.importorskip("cupy")
    a, numbers = poisson(60), np.random.default_rng(6)
    kept = krysp.Operator(a, "cuda:0")
    m = krysp.jacobi(kept)
    for turn in range(3):
        host = numbers.random(3601)
        # contiguous, but not at the start of an allocation
        b = cupy.asarray(host)[1:]
        for method in METHODS:
            for restart in (20, 7) if method in (krysp.gmres, krysp.fgmres) else (None,):
                more = {} if restart is None else {"restart": restart}
                fresh = krysp.Operator(a, "cuda:0")
                x = method(kept, b, M=m if turn % 2 else None, rtol=1e-10, **more).x
                again = method(fresh, b, M=krysp.jacobi(fresh) if turn % 2 else None, rtol=1e-10, **more).x
                np.testing.assert_array_equal(x.get(), again.get())
                np.testing.assert_allclose(a @ x.get(), host[1:], rtol=1e-6, atol=1e-7)
        # NaNs in kept workspace do not reach the next solve
        assert krysp.cg(kept, cupy.full(3600, np.nan)).info != 0
        assert krysp.cg(kept, np.full(3600, np.nan)).info != 0
    kept.refresh(2.0 * a.data)
    np.testing.assert_allclose(2.0 * (a @ krysp.cg(kept, b, rtol=1e-10).x.get()), host[1:], rtol=1e-6, atol=1e-7)


def test_threads_share_an_operator():
    a, numbers = poisson(60), np.random.default_rng(7)
    operator = krysp.Operator(a, "cuda:0")
    sides = numbers.random((8, 3600))
    with ThreadPoolExecutor(4) as pool:
        for b, result in zip(sides, pool.map(lambda b: krysp.cg(operator, b, rtol=1e-10), sides)):
            assert result.info == 0
            np.testing.assert_allclose(a @ result.x, b, rtol=1e-6, atol=1e-8)


def test_operators_are_saved_and_loaded(tmp_path):
    a, b, path = poisson(60), np.random.default_rng(8).random(3600), tmp_path / "a.krysp"
    saved = krysp.Operator(a, "cuda:0", symmetric=True)
    saved.refresh(2.0 * a.data)
    saved.save(path)
    loaded = krysp.Operator.load(path, "cuda:0")
    assert loaded.choice.splitlines()[0] == saved.choice.splitlines()[0]
    np.testing.assert_array_equal(loaded @ b, saved @ b)
    with pytest.raises(krysp.KryspError, match="a GPU"):
        krysp.Operator.load(path, "cpu")


def test_values_change_between_solves():
    a, b = poisson(60), np.random.default_rng(9).random(3600)
    operator = krysp.Operator(a, "cuda:0")
    first = krysp.cg(operator, b, rtol=1e-8).report
    operator.refresh(1e3 * a.data)
    second = krysp.cg(operator, b, rtol=1e-8).report
    # the backward error uses the norm of the new values
    assert 0.5 < first.backward_error / second.backward_error < 2.0


def test_streams_of_cupy():
    cupy = pytest.importorskip("cupy")
    a, b = poisson(60), np.random.default_rng(4).random(3600)
    operator = krysp.Operator(a, "cuda:0")
    with cupy.cuda.Stream(non_blocking=True) as stream:
        given = cupy.zeros(3600)
        big = cupy.ones((4000, 4000))
        for _ in range(20):
            big = big @ big
            big /= big.max()
        # queued behind much work: a solve that does not wait would read zeros
        given += big[0, 0] * 0.0 + cupy.asarray(b)
        x, info = krysp.cg(operator, given, rtol=1e-10)
        assert info == 0
        y = a.shape[0] * x
        stream.synchronize()
    np.testing.assert_allclose(a @ x.get(), b, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(y.get(), 3600 * x.get())


def test_tensors_of_torch():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    a, b = poisson(60), np.random.default_rng(5).random(3600)
    operator = krysp.Operator(a, "cuda:0")
    given = torch.from_numpy(b).cuda()
    x, info = krysp.cg(operator, given, rtol=1e-10)
    assert isinstance(x, torch.Tensor) and x.device == given.device and info == 0
    np.testing.assert_allclose(a @ x.cpu().numpy(), b, rtol=1e-6, atol=1e-8)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        late = torch.zeros_like(given)
        big = torch.ones((4000, 4000), device="cuda", dtype=torch.float64)
        for _ in range(20):
            big = big @ big
            big /= big.max()
        late += big[0, 0] * 0.0 + given
        x, info = krysp.gmres(operator, late, rtol=1e-10)
    assert info == 0
    np.testing.assert_allclose(a @ x.cpu().numpy(), b, rtol=1e-6, atol=1e-8)
    single = krysp.Operator(a.astype(np.float32), "cuda:0")
    x, info = krysp.cg(single, given.float(), rtol=1e-3)
    assert x.dtype == torch.float32 and info == 0
    rows = torch.sparse_csr_tensor(
        torch.from_numpy(a.indptr), torch.from_numpy(a.indices), torch.from_numpy(a.data), a.shape
    ).cuda()
    x, info = krysp.cg(rows, given, rtol=1e-10)
    assert isinstance(x, torch.Tensor) and info == 0


def test_addresses_elsewhere_are_refused():
    operator = krysp.Operator(poisson(60), "cuda:0")
    host = np.ones(3600)
    address = host.__array_interface__["data"][0]
    for wrong in (address, 0, 64):
        with pytest.raises(krysp.KryspError, match="are not in one allocation of GPU 0"):
            krysp._krysp.solve_on_device(
                "cg", operator._core, wrong, wrong, False, None, 1e-8, 0.0, 100, 20
            )
