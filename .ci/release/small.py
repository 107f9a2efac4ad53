"""Solves one system with every kind of preconditioner. An argument is a folder to import from, for an emulator that starts an
interpreter outside of its environment."""

import sys

sys.path[:0] = sys.argv[1:]

import krysp
import numpy as np
import scipy.sparse as sp
from krysp import _krysp

line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(30, 30))
A = sp.kronsum(line, line, format="csr")
b = np.ones(A.shape[0])
for device in ["cpu", *(["cuda:0"] if krysp.devices() else [])]:
    op = krysp.Operator(A, device=device)
    for make in (krysp.jacobi, krysp.amg, krysp.fsai, krysp.spai, *((krysp.ilut, krysp.lu) if device == "cpu" else ())):
        x, info = krysp.gmres(op, b, M=make(op), rtol=1e-10)
        assert info == 0 and np.linalg.norm(b - A @ x) <= 1e-9 * np.linalg.norm(b), (device, make.__name__)
    x, info = krysp.solve(A, b, device=device)
    assert info == 0, device
    print(f"krysp {krysp.__version__} on Python {sys.version.split()[0]} solves on {device}; GPUs: {krysp.devices()}")
print(f"NVRTC: {_krysp.compiler_version()}")
