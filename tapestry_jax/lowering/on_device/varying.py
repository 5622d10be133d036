"""Over which mesh axes a value varies, and making it vary over more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
from jax import lax

from combinators.equations.marked import marked
from tapestry_jax.planning.geometry.time_axis import in_space


def varying_axes(value: Any) -> frozenset[str]:
    """The mesh axes over which a value of the SPMD program varies."""
    return frozenset(jax.typeof(value).manual_axis_type.varying)


def vary(value: Any, axes: Iterable[str], order: Sequence[int] = ()) -> Any:
    """Let a value vary over all of `axes`; its gradient is then summed over those that are new.

    Args:
      value: an array.
      axes: of the mesh.
      order: of the value's axes while its gradient is summed; as they stand where it is empty.
    """
    missing = tuple(axis for axis in in_space(axes) if axis not in varying_axes(value))
    if not missing or not order:
        return lax.pcast(value, missing, to="varying") if missing else value
    back = sorted(range(len(order)), key=order.__getitem__)
    return lax.transpose(lax.pcast(lax.transpose(value, order), missing, to="varying"), back)


def received(value: Any) -> Any:
    """The same value, marked as what a collective brought: a loop in time keeps it, and does not send it again."""
    return marked(value, RECEIVED)


def came_round(value: Any) -> Any:
    """The same value, marked as what came round a ring: it is kept as well, but where the plan has rings turn again."""
    return marked(value, ROUND)


RECEIVED, ROUND = "received", "round"
