"""Pictures, drawn by matplotlib where it is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import _input

if TYPE_CHECKING:
    from ._krysp import Report

# cells of the picture of a matrix, along one side at most
CELLS = 400


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install matplotlib") from error
    return pyplot.subplots()[1]


def spy(A: Any, ax: Any = None) -> Any:
    """Draws where a matrix has entries: the more of them a cell of the picture holds, the darker it is.

    Parameters
    ----------
    A : sparse matrix or array of SciPy
        Of any size: what is drawn has at most 400 cells along a side.
    ax : matplotlib axes, optional
        Where to draw; a new figure if not given.

    Returns
    -------
    matplotlib axes
    """
    matrix = _input.sparse(A).tocoo()
    shape = [max(1, min(CELLS, side)) for side in matrix.shape]
    sides = [max(1, side) for side in matrix.shape]
    counts, _, _ = np.histogram2d(
        matrix.row, matrix.col, bins=shape, range=[[-0.5, sides[0] - 0.5], [-0.5, sides[1] - 0.5]]
    )
    ax = _axes(ax)
    extent = (-0.5, sides[1] - 0.5, sides[0] - 0.5, -0.5)
    ax.imshow(np.log1p(counts), cmap="Greys", extent=extent, interpolation="nearest")
    ax.set_title(f"{matrix.shape[0]} x {matrix.shape[1]}, {matrix.nnz} entries")
    return ax


def residuals(report: Report, ax: Any = None) -> Any:
    """Draws the relative residuals of a solve over its iterations, and the tolerance."""
    ax = _axes(ax)
    scale = report.rhs_norm or 1.0
    ax.semilogy(report.history / scale, label=f"{report.method}, by the recurrence")
    if report.tolerance > 0.0:
        ax.axhline(report.tolerance / scale, linestyle=":", color="grey", label="tolerance")
    ax.plot(len(report.history) - 1, report.true_residual / scale, "o", label="recomputed")
    ax.set_xlabel("iteration")
    ax.set_ylabel("‖b − A x‖ / ‖b‖")
    ax.legend()
    return ax
