"""Matrices that stay."""

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

NO_TRANSPOSE = "an operator has no product with its transpose: make one of the transpose, `krysp.Operator(A.T)`"


class Text(str):
    """A text that notebooks show with its line breaks."""

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self)}</pre>"

    def __repr__(self) -> str:
        return str(self)


class Operator(LinearOperator):  # type: ignore[misc]
    """A matrix in the format and the memory that suit it, for many products and solves.

    Parameters
    ----------
    A : sparse matrix or array of SciPy
        In any format; indices may be unsorted and repeated. Of elements `float32` it computes in single precision, of all
        others in double.
    device : str
        ``"cpu"``, ``"cuda:0"`` for the first GPU, or ``"auto"`` for that where there is one.
    symmetric : bool
        Declares that the matrix is symmetric and stays so: formats that store one triangle are considered, too. A matrix that
        is not symmetric is refused.
    renumber : bool
        Renumbers rows and columns inside so that neighbours lie close in memory (reverse Cuthill-McKee): for matrices of meshes
        that were numbered without order, in host memory. Vectors stay in your order. Make preconditioners of the operator: those
        of `A` work, too, but bring vectors from one order to the other each time.

    Attributes
    ----------
    plan : str
        The format that was chosen, why, and what was weighed against it.
    device : str
        Where the matrix is.

    Notes
    -----
    The matrix is copied, and analysed once. `krysp.cg(A, b)` with a matrix of SciPy does so only where it pays for that one solve.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krysp
    >>> A = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(1000, 1000), format="csr")
    >>> op = krysp.Operator(A, device="cpu")
    >>> op.plan.split(":")[0]
    'DIA, 3 diagonals'
    >>> bool(np.allclose(op @ np.ones(1000), A @ np.ones(1000)))
    True
    >>> op.refresh(2.0 * A.data)
    >>> bool(np.allclose(op @ np.ones(1000), 2.0 * A @ np.ones(1000)))
    True
    """

    dtype: np.dtype[Any]
    shape: tuple[int, int]

    def __init__(self, A: GivenMatrix, device: str = "auto", *, symmetric: bool = False, renumber: bool = False) -> None:
        layout, shape, first, second, data = _input.arrays(A)
        self._given, self._renumbered = _input.format_of(A), renumber
        dtype = _input.real(data.dtype, "the matrix")
        self.device = place(device)
        if renumber and self.device != "cpu":
            raise ValueError('`renumber` is for matrices in host memory: say device="cpu"')
        values = _input.values(data, dtype)
        self._core = Matrix(layout, shape, first, second, values, self.device, symmetric, renumber)
        super().__init__(dtype, shape)

    @property
    def plan(self) -> str:
        return Text(self._core.plan())

    @property
    def nbytes(self) -> int:
        """The bytes that a product reads, without vectors."""
        return self._core.nbytes

    def refresh(self, values: ArrayLike | GivenMatrix) -> None:
        """Takes new values for the same pattern; nothing is analysed again.

        Parameters
        ----------
        values : array, or sparse matrix or array of SciPy
            A matrix of the same pattern, in any format and with its indices in any order: the pattern is checked, so that no value
            can go astray. Or the values alone, in the order that ``A.data`` had when ``A`` was given, if that was CSR, CSC or
            COO. SciPy may sort indices in place and `data` with them: give the matrix where that can happen.

        Raises
        ------
        ValueError
            If the pattern differs (the message names the first row), or a value is infinite, NaN or complex. The old values stay.
        """
        _input.refresh(self._core, values, self.dtype, self._given)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the matrix in its format, for `load`.

        Parameters
        ----------
        path : str or path
        """
        self._core.save(os.fspath(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str = "auto") -> Operator:
        """What `save` wrote: nothing is weighed or renumbered again, and on a CPU nothing converted.

        Parameters
        ----------
        path : str or path
        device : str
            As for a new operator; the same kind of device as when it was saved.

        Raises
        ------
        KryspError
            If the file is damaged, or of another version or kind of processor; the message says which.

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
        operator._given, operator._renumbered = "csr", False
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
        """For `pickle` and `copy`: the bytes that `save` writes."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "operator.krysp")
            self.save(path)
            return _restored, (path.read_bytes(), self.device)

    def _matvec(self, x: ArrayLike) -> FloatArray:
        return self._core.apply(_input.vector(x, self.shape[1], self.dtype, "x"))

    def __repr__(self) -> str:
        rows, cols = self.shape
        stored = self.plan.partition("\n")[0]
        return f"<krysp.Operator {rows} x {cols}, {self.dtype}, {self.device}: {stored}>"

    def _repr_html_(self) -> str:
        rows = {
            "shape": f"{self.shape[0]} x {self.shape[1]}",
            "elements": str(self.dtype),
            "device": self.device,
            "bytes": f"{self.nbytes:,}",
            "format": self.plan.partition("\n")[0],
        }
        cells = "".join(f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in rows.items())
        return f"<table><caption>krysp.Operator</caption>{cells}</table>"


def _restored(saved: bytes, device: str) -> Operator:
    """An operator that was pickled, on the device that it was on."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "operator.krysp")
        path.write_bytes(saved)
        return Operator.load(path, device)


def place(device: object) -> str:
    """The name of a device, from what users write."""
    name = str(device)
    if name == "auto":
        return "cuda:0" if devices() else "cpu"
    if name == "cuda":
        return "cuda:0"
    if name == "cpu" or (name.startswith("cuda:") and name[5:].isdigit()):
        return name
    shown = repr(name) if len(name) < 20 else f"of type {type(device).__name__}"
    raise ValueError(f'device is {shown}: "cpu", "cuda:0" or "auto" is needed')
