"""Results of solves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import _input
from ._krysp import Report
from ._types import FloatArray


class Result(tuple):  # type: ignore[type-arg]
    """The result of a solve. It unpacks as ``x, info``, as SciPy's results do.

    Attributes
    ----------
    x : array
        The solution, or the last iterate. Of the shape of `b` if that has several columns.
    info : int
        0 if ``norm(b - A @ x) <= max(rtol * norm(b), atol)``, computed with the returned `x`; negative if the method broke down
        or met a number that is not finite; otherwise the number of iterations. With a declared null space, `b` is here what remains after
        its component in the null space was removed (``report.removed``). For several columns, the `info` of the first column
        that did not converge, or 0.
    report : Report
        Outcome and cost of the solve. ``print(report)`` includes advice on what to try next. If there are several columns,
        it is the report of the first column that did not converge or, if all converged, of the column with the most iterations.
    reports : list of Report
        The report of each column.
    """

    x: FloatArray
    info: int
    report: Report
    reports: list[Report]

    def __new__(cls, x: FloatArray, info: int, report: Report, reports: list[Report] | None = None) -> Result:
        result = super().__new__(cls, (x, info))
        result.x, result.info, result.report = x, info, report
        result.reports = [report] if reports is None else reports
        return result

    @classmethod
    def of_columns(cls, x: FloatArray, ended: list[tuple[int, Report]]) -> Result:
        """The result for several columns, from `info` and report of each."""
        worst = max(ended, key=lambda one: one[1].iterations)
        info, report = next((one for one in ended if one[0] != 0), worst)
        return cls(x, info, report, [report for _, report in ended])

    def __reduce__(self) -> tuple[Any, ...]:
        return Result, (self.x, self.info, self.report, self.reports)

    def __repr__(self) -> str:
        return f"<krysp.Result {self.report}>"

    def _repr_html_(self) -> str:
        return self.report._repr_html_()


def one_by_one(solve: Callable[[Any, Any], Result], b: Any, x0: Any, n: int, dtype: np.dtype[Any]) -> Result:
    """Solves for the columns of `b`, one after the other."""
    flat = _input.columns(b, n, dtype, "b").reshape((n, b.shape[1]), order="F")
    if x0 is None or isinstance(x0, str):
        guesses = [x0] * flat.shape[1]
    else:
        x0 = np.asarray(x0)
        if x0.shape != flat.shape:
            raise ValueError(f"x0 must have the shape of b, {flat.shape}; got {x0.shape}")
        guesses = list(x0.T)
    results = [solve(column, guess) for column, guess in zip(flat.T, guesses)]
    columns: list[Any] = [result.x for result in results]
    x: FloatArray = np.stack(columns, axis=1)
    return Result.of_columns(x, [(result.info, result.report) for result in results])
