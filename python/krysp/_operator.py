"""`Operator`: a matrix that is converted once and used many times."""

from __future__ import annotations

import html
import os
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator

from . import _input
from ._krysp import Matrix, devices
from ._types import FloatArray
from ._types import Matrix as GivenMatrix

NO_TRANSPOSE = "an operator cannot apply its transpose: create one from the transpose, `krysp.Operator(A.T)`"


class Text(str):
    """A string that notebooks display with its line breaks."""

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self)}</pre>"

    def __repr__(self) -> str:
        return str(self)


class Operator(LinearOperator):  # type: ignore[misc]
    """A copy of a matrix in a format that suits it, in host memory or on a GPU, for many matrix-vector products and solves.

    Parameters
    ----------
    A : sparse matrix or array of SciPy
        In any format; indices may be unsorted and repeated. Computations are in single precision for the dtype `float32`, in
        double precision for all others.
    device : str
        ``"cpu"``, ``"cuda:0"`` for the first GPU, or ``"auto"`` for the first GPU if there is one.
    symmetric : bool
        Declares that the matrix is symmetric, also after `refresh`, so that formats that store one triangle are considered, too.
        Raises an error if it is not symmetric.
    reorder : bool
        Reorders rows and columns internally by reverse Cuthill-McKee, for locality. Use it for mesh matrices with a poor
        ordering, in host memory. Vectors keep your ordering. Build preconditioners from the operator: those built from `A` work,
        too, but permute vectors in each application.

    Attributes
    ----------
    choice : str
        The chosen format, the reason, and the alternatives.
    device : str
        The device of the matrix.

    Notes
    -----
    The constructor copies and analyses the matrix. `krysp.cg(A, b)` with a SciPy matrix does so in each solve, if the solve is
    long enough.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> A = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(1000, 1000), format="csr")
    >>> op = krysp.Operator(A, device="cpu")
    >>> op.choice.split(":")[0]
    'DIA, 3 diagonals'
    >>> bool(np.allclose(op @ np.ones(1000), A @ np.ones(1000)))
    True
    >>> op.refresh(2.0 * A.data)
    >>> bool(np.allclose(op @ np.ones(1000), 2.0 * A @ np.ones(1000)))
    True
    """

    dtype: np.dtype[Any]
    shape: tuple[int, int]

    def __init__(self, A: GivenMatrix, device: str = "auto", *, symmetric: bool = False, reorder: bool = False) -> None:
        layout, shape, first, second, data = _input.arrays(A)
        self._given = _input.format_of(A)
        dtype = _input.real(data.dtype, "the matrix")
        self.device = place(device)
        if reorder and self.device != "cpu":
            raise ValueError('`reorder=True` needs a matrix in host memory: pass device="cpu"')
        values = _input.values(data, dtype)
        self._core = Matrix(layout, shape, first, second, values, self.device, symmetric, reorder)
        super().__init__(dtype, shape)

    @property
    def choice(self) -> str:
        return Text(self._core.choice())

    @property
    def nbytes(self) -> int:
        """Bytes of the matrix that one matrix-vector product reads."""
        return self._core.nbytes

    def refresh(self, values: ArrayLike | GivenMatrix) -> None:
        """Replaces the values of the matrix, without a new analysis. The sparsity pattern must be the same.

        Parameters
        ----------
        values : array, or sparse matrix or array of SciPy
            A matrix with the same pattern, in any format and with its indices in any order; the pattern is checked. Or the values
            alone, in the order that ``A.data`` had when ``A`` was given, if that was CSR, CSC or COO. SciPy may sort the indices
            of a matrix in place, and its `data` with them: pass the matrix if that can happen.

        Raises
        ------
        ValueError
            If the pattern differs (the message names the first row), or a value is infinite, NaN or complex. The old values are
            kept.
        RuntimeError
            If the operator is in use, by a solve in another thread or by the solve that called this function.
        """
        _input.refresh(self._core, values, self.shape, self.dtype, self._given)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves the matrix in its format, for `load`.

        Parameters
        ----------
        path : str or path
        """
        self._core.save(os.fspath(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str = "auto") -> Operator:
        """Loads an operator that `save` wrote, without choosing a format or reordering again; on a CPU also without conversion.

        Parameters
        ----------
        path : str or path
        device : str
            As for a new operator; must be the same kind of device as when it was saved.

        Raises
        ------
        KryspError
            If the file is damaged, or was saved by another version or for another kind of processor; the message says which.

        Examples
        --------
        >>> import numpy as np, scipy.sparse as sp, krysp, os, tempfile
        >>> A = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(1000, 1000), format="csr")
        >>> path = os.path.join(tempfile.mkdtemp(), "operator.krysp")
        >>> krysp.Operator(A, device="cpu").save(path)
        >>> op = krysp.Operator.load(path, device="cpu")
        >>> bool(np.allclose(op @ np.ones(1000), A @ np.ones(1000)))
        True
        """
        operator = cls.__new__(cls)
        operator.device = place(device)
        operator._core = Matrix.load(os.fspath(path), operator.device)
        operator._given = "csr"
        dtype = _input.SINGLE if operator._core.single else _input.DOUBLE
        LinearOperator.__init__(operator, dtype, operator._core.shape)
        return operator

    @property
    def T(self) -> NoReturn:
        raise AttributeError(NO_TRANSPOSE)

    @property
    def H(self) -> NoReturn:
        raise AttributeError(NO_TRANSPOSE)

    def _transpose(self) -> NoReturn:
        raise NotImplementedError(NO_TRANSPOSE)

    def _adjoint(self) -> NoReturn:
        raise NotImplementedError(NO_TRANSPOSE)

    def _rmatvec(self, x: ArrayLike) -> NoReturn:
        raise NotImplementedError(NO_TRANSPOSE)

    def _rmatmat(self, X: ArrayLike) -> NoReturn:
        raise NotImplementedError(NO_TRANSPOSE)

    def __reduce__(self) -> tuple[Any, ...]:
        """Supports `pickle` and `copy`, with the bytes that `save` writes."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "operator.krysp")
            self.save(path)
            return _restored, (path.read_bytes(), self.device)

    def _matvec(self, x: ArrayLike) -> FloatArray:
        return self._core.apply(_input.vector(x, self.shape[1], self.dtype, "x", may_vanish=True))

    def _matmat(self, X: ArrayLike) -> FloatArray:
        rows, cols = self.shape
        X = np.asarray(X)
        if X.size == 0:
            return np.zeros((rows, X.shape[1]), self.dtype)
        y: FloatArray = self._core.apply_many(_input.columns(X, cols, self.dtype, "X"), cols)
        return y.reshape((rows, X.shape[1]), order="F")

    def __repr__(self) -> str:
        rows, cols = self.shape
        stored = self.choice.partition("\n")[0]
        return f"<krysp.Operator {rows} x {cols}, {self.dtype}, {self.device}: {stored}>"

    def _repr_html_(self) -> str:
        rows = {
            "shape": f"{self.shape[0]} x {self.shape[1]}",
            "elements": str(self.dtype),
            "device": self.device,
            "bytes": f"{self.nbytes:,}",
            "format": self.choice.partition("\n")[0],
        }
        cells = "".join(f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in rows.items())
        return f"<table><caption>krysp.Operator</caption>{cells}</table>"


def _restored(saved: bytes, device: str) -> Operator:
    """Restores a pickled operator on its device."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "operator.krysp")
        path.write_bytes(saved)
        return Operator.load(path, device)


def place(device: object) -> str:
    """The full name of a device, "cpu" or "cuda:<n>", from a name or an object that prints as one. "gpu" means "cuda", as in the
    program; case does not matter."""
    name = str(device)
    full = name.lower().replace("gpu", "cuda")
    if full == "auto":
        return "cuda:0" if devices() else "cpu"
    if full == "cuda":
        return "cuda:0"
    if full == "cpu" or (full.startswith("cuda:") and full[5:].isdigit()):
        return full
    shown = repr(name) if len(name) < 20 else f"an object of type {type(device).__name__}"
    raise ValueError(f'device must be "cpu", "cuda" (the first GPU), "cuda:0", "cuda:1", ... or "auto"; got {shown}')
