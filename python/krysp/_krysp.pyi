from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__version__: str

class KryspError(RuntimeError): ...

class Matrix:
    def __init__(
        self,
        layout: str,
        shape: tuple[int, int],
        first: NDArray[Any],
        second: NDArray[Any],
        data: NDArray[Any],
        place: str,
        symmetric: bool,
    ) -> None: ...
    def refresh(self, values: NDArray[Any]) -> None: ...
    def apply(self, x: NDArray[Any]) -> NDArray[Any]: ...
    def plan(self) -> str: ...
    @property
    def nbytes(self) -> int: ...

class Preconditioner:
    def __init__(
        self,
        name: str,
        matrix: Matrix,
        block: int | None,
        given_modes: list[NDArray[Any]],
        strength: float,
        sweeps: int,
        coarsest: int,
    ) -> None: ...
    def refresh(self, matrix: Matrix) -> None: ...
    def apply(self, r: NDArray[Any]) -> NDArray[Any]: ...
    def text(self) -> str: ...

class Report:
    """How a solve ended, and what it cost. Printed, it is one line."""

    @property
    def method(self) -> str: ...
    @property
    def outcome(self) -> str: ...
    @property
    def converged(self) -> bool: ...
    @property
    def advice(self) -> str | None: ...
    @property
    def rungs(self) -> list[str]: ...
    @property
    def iterations(self) -> int: ...
    @property
    def history(self) -> NDArray[np.float64]: ...
    @property
    def true_residual(self) -> float: ...
    @property
    def relative_residual(self) -> float: ...
    @property
    def backward_error(self) -> float: ...
    @property
    def rhs_norm(self) -> float: ...
    @property
    def tolerance(self) -> float: ...
    @property
    def restarts(self) -> int: ...
    @property
    def time(self) -> float: ...
    @property
    def bytes(self) -> int: ...
    @property
    def condition(self) -> float | None: ...
    def plot(self, ax: Any = None) -> Any: ...
    def _repr_html_(self) -> str: ...

class Plan:
    def __init__(
        self,
        layout: str,
        shape: tuple[int, int],
        first: NDArray[Any],
        second: NDArray[Any],
        data: NDArray[Any],
        place: str,
        rtol: float,
        solves: int | None,
        new_values: bool,
        max_iterations: int | None,
        time_limit: float | None,
        saved: str | None,
    ) -> None: ...
    def save(self, path: str) -> None: ...
    def solve(self, b: NDArray[Any], x0: NDArray[Any] | None) -> tuple[NDArray[Any], int, Report]: ...
    def refresh(self, values: NDArray[Any]) -> None: ...
    def text(self) -> str: ...

def devices() -> list[str]: ...
def rigid_motions(points: list[list[float]], by_component: bool) -> list[NDArray[np.float64]]: ...
def solve(
    method: str,
    a: Any,
    b: NDArray[Any],
    x0: NDArray[Any] | None,
    m: Any,
    rtol: float,
    atol: float,
    max_iterations: int,
    restart: int,
    callback: Callable[[Any], Any] | None,
    of_iterates: bool,
) -> tuple[NDArray[Any], int, Report]: ...
def stream(matrix: Matrix) -> int | None: ...
def solve_on_device(
    method: str,
    a: Matrix,
    b: int,
    x: int,
    guess: bool,
    m: Any,
    rtol: float,
    atol: float,
    max_iterations: int,
    restart: int,
) -> tuple[int, Report]: ...
