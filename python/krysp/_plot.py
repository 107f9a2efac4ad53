"""Plots with matplotlib, an optional dependency."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import _input

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ._krysp import Report
    from ._types import Matrix

# maximum number of cells along a side of the plot of a matrix
CELLS = 400


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install matplotlib") from error
    return pyplot.subplots()[1]


def spy(A: Matrix, ax: Axes | None = None) -> Axes:
    """Plots the sparsity pattern of a matrix: the more entries a cell of the plot has, the darker it is.

    Parameters
    ----------
    A : sparse matrix or array of SciPy
        Of any size: the plot has at most 400 cells along a side.
    ax : matplotlib axes, optional
        The axes to draw on. Default: those of a new figure.

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
    axes = _axes(ax)
    extent = (-0.5, sides[1] - 0.5, sides[0] - 0.5, -0.5)
    axes.imshow(np.log1p(counts), cmap="Greys", extent=extent, interpolation="nearest")
    axes.set_title(f"{matrix.shape[0]} x {matrix.shape[1]}, {matrix.nnz} entries")
    return axes


def residuals(report: Report, ax: Axes | None = None) -> Axes:
    """Plots the relative residuals of a solve against the iterations, and the tolerance."""
    axes = _axes(ax)
    scale = report.rhs_norm or 1.0
    axes.semilogy(report.history / scale, label=f"{report.method}, by the recurrence")
    if report.tolerance > 0.0:
        axes.axhline(report.tolerance / scale, linestyle=":", color="grey", label="tolerance")
    axes.plot(len(report.history) - 1, report.true_residual / scale, "o", label="recomputed")
    axes.set_xlabel("iteration")
    axes.set_ylabel("‖b − A x‖ / ‖b‖")
    axes.legend()
    return axes
