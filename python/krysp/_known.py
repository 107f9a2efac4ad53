"""Checks and converts the properties of a system that a user declares."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import _input
from ._types import FloatArray


def checked(
    rows: int,
    *,
    coordinates: ArrayLike | None = None,
    components: ArrayLike | None = None,
    near_null_space: ArrayLike | None = None,
    null_space: ArrayLike | str | None = None,
    symmetric: bool | None = None,
    positive_definite: bool | None = None,
    fields: ArrayLike | None = None,
) -> dict[str, object]:
    """The checked properties by name; `None` for a property that was not given."""
    if components is not None and coordinates is None:
        raise ValueError("components need coordinates, the point of each unknown")
    constant = isinstance(null_space, str)
    if constant and null_space != "constant":
        raise ValueError(f'null_space must be "constant" or an array; got {null_space!r}')
    return {
        "coordinates": None if coordinates is None else _points(coordinates),
        "components": None if components is None else indices(components, rows, "components", 3),
        "near_null_space": None if near_null_space is None else _columns(near_null_space, rows, "near_null_space"),
        "null_space": [np.ones(rows)] if constant else None if null_space is None else _columns(null_space, rows, "null_space"),
        "symmetric": None if symmetric is None else bool(symmetric),
        "positive_definite": None if positive_definite is None else bool(positive_definite),
        "fields": None if fields is None else indices(fields, rows, "fields", max(rows, 1)),
    }


def _points(given: ArrayLike) -> FloatArray:
    """Three coordinates of each point, as a flat array; z is zero for points in the plane."""
    points = np.asarray(given)
    _input.real(points.dtype, "coordinates")
    if points.ndim != 2 or points.shape[1] not in (2, 3):
        raise ValueError(f"coordinates must have shape (points, 2) or (points, 3); got {points.shape}")
    if len(points) > 1 and (points == points[0]).all():
        raise ValueError(f"coordinates must differ: all {len(points)} points are at {points[0].tolist()}")
    three = np.zeros((points.shape[0], 3))
    three[:, : points.shape[1]] = points
    return three.ravel()


def _columns(given: Any, rows: int, what: str) -> list[FloatArray]:
    """The columns of an array, in double precision."""
    array = np.asarray(given)
    _input.real(array.dtype, what)
    columns = array[:, None] if array.ndim == 1 else array
    if columns.ndim != 2 or columns.shape[0] != rows:
        raise ValueError(f"{what} must have shape ({rows},) or ({rows}, k); got {array.shape}")
    return [np.array(column, dtype=np.float64) for column in columns.T]


def indices(given: ArrayLike, rows: int, what: str, bound: int) -> Any:
    """An array of integers from 0 to `bound - 1`, one for each unknown."""
    array = np.asarray(given)
    if array.shape != (rows,):
        raise ValueError(f"{what} must have shape ({rows},); got {array.shape}")
    if array.dtype.kind not in "iub":
        raise TypeError(f"{what} must have an integer dtype; got {array.dtype}")
    outside = np.flatnonzero((array < 0) | (array >= bound))
    if len(outside):
        raise ValueError(f"{what} must be integers from 0 to {bound - 1}; unknown {outside[0]} has {array[outside[0]]}")
    return np.ascontiguousarray(array, dtype=np.int64)
