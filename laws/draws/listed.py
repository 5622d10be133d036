"""Values that users list or draw, looked at where they come in: a law that is run on them cannot say what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis.strategies import SearchStrategy
from jax import dtypes

from combinators.errors import message, spelt
from laws.draws.cells import F32, Struct, plain, type_name, why_not_drawn
from laws.errors import LawError

Listed = Sequence[Any] | SearchStrategy[Any] | None


def as_listed(called: str, values: Any) -> Listed:
    """What `values=` holds: a strategy, or the list of what was listed.

    Args:
      called: the name of the piece.
      values: a strategy, a list, a tuple, or an array that is a list of its rows.

    Raises:
      LawError: when it is anything else.
    """
    if values is None or isinstance(values, SearchStrategy):
        return cast("SearchStrategy[Any] | None", values)
    if isinstance(values, list | tuple) or (isinstance(values, np.ndarray | jax.Array) and np.ndim(values)):
        return list(cast("Sequence[Any]", values))
    raise LawError(
        message(
            f"`{called}`: values= holds no values.",
            "expected a list with one entry for every example, or a hypothesis strategy",
            f"got      {type(values).__name__}: {spelt(values)}",
            remedy="Put the values in a list, or draw them by laws.values.",
        )
    )


def value_type(called: str, values: Sequence[Any]) -> Any:
    """The type that all listed values have: their one tree and shapes, and dtypes that hold every one.

    Args:
      called: the name of the piece.
      values: at least one.

    Returns:
      A pytree of `jax.ShapeDtypeStruct`.

    Raises:
      LawError: when one is no pytree of numbers and arrays, or not like the first.
    """
    described = [described_value(called, f"values[{i}]", value) for i, value in enumerate(values)]
    first = _without_dtype(described[0])
    for i, kind in enumerate(described):
        if _without_dtype(kind) != first:
            raise LawError(
                message(
                    f"`{called}`: the values are not of one type.",
                    f"values[0] is {_shown(described[0])}",
                    f"values[{i}] is {_shown(kind)}",
                    remedy="List values of one tree and of the same shapes; check others on their own.",
                )
            )
    columns = zip(*(jax.tree.leaves(value) for value in values), strict=True)
    shapes, tree = jax.tree.flatten(described[0])
    found = [
        Struct(s.shape, jnp.result_type(*map(_number_type, column))) for s, column in zip(shapes, columns, strict=True)
    ]
    return jax.tree.unflatten(tree, found)


def described_value(called: str, where: str, value: Any) -> Any:
    """The type of one value: a pytree of `jax.ShapeDtypeStruct`.

    Raises:
      LawError: when a leaf is no number or array, or holds what is not drawn.
    """
    problems: list[str] = []

    def kind(path: Any, leaf: Any) -> Struct:
        place = f"{where}{jax.tree_util.keystr(path)}"
        try:
            struct = Struct(np.shape(leaf), jnp.result_type(_number_type(leaf)))
        except (TypeError, ValueError, OverflowError):
            problems.append(f"{place} is {type(leaf).__name__}: {spelt(leaf, 60)}")
            return F32
        if (why := why_not_drawn(struct.dtype)) is not None:
            problems.append(f"{place}: {why}")
        return struct

    found = jax.tree_util.tree_map_with_path(kind, value)
    if problems:
        raise LawError(
            message(
                f"`{called}`: a value is no pytree of arrays.",
                *problems,
                remedy="Pass numbers and arrays, real, integer or boolean, that fit the dtypes of JAX.",
            )
        )
    return found


def as_entries(called: str, value: Any, types: Sequence[Struct]) -> list[Any]:
    """A value as plain data, leaf by leaf.

    Args:
      called: the name of the piece.
      value: listed or drawn.
      types: of its leaves.

    Raises:
      LawError: when it is of other types, or a type does not hold it.
    """
    leaves = jax.tree.leaves(described_value(called, "the value", value))
    if [leaf.shape for leaf in leaves] != [tuple(kind.shape) for kind in types]:
        raise LawError(
            message(
                f"`{called}`: a value is not of the types that are checked.",
                f"expected {', '.join(map(type_name, types))}",
                f"got      {', '.join(map(type_name, leaves)) or 'nothing'}",
                remedy="Draw values of one type, with one array for every input or leaf.",
            )
        )
    given = jax.tree.leaves(value)
    for leaf, kind in zip(given, types, strict=True):
        if (entry := first_misfit(leaf, kind.dtype)) is not None:
            raise LawError(
                message(
                    f"`{called}`: {np.dtype(kind.dtype).name} does not hold a value.",
                    f"got {spelt(entry, 60)}",
                    remedy="Pass values that fit, or types= of a dtype that holds them (64 bits need jax_enable_x64).",
                )
            )
    return [plain(leaf) for leaf in given]


def first_misfit(values: Any, dtype: Any) -> Any:
    """The first number that a boolean or integer dtype does not hold, or None; floats hold all numbers, rounded."""
    if jnp.issubdtype(dtype, jnp.inexact):
        return None
    if dtype == jnp.bool_:
        low, high = 0, 1
    else:
        low, high = int(jnp.iinfo(dtype).min), int(jnp.iinfo(dtype).max)
    entries = np.ravel(np.asarray(values)).tolist()
    return next((entry for entry in entries if not (low <= entry <= high and entry == int(entry))), None)


def _number_type(leaf: Any) -> Any:
    """The dtype of an array, as JAX computes in it; a Python number itself, since it takes the dtype of the others."""
    if isinstance(leaf, bool | int | float | complex):
        return leaf
    if isinstance(leaf, jax.Array):
        return leaf.dtype
    if not isinstance(leaf, np.ndarray | np.generic):
        raise TypeError(type(leaf).__name__)  # of a word `result_type` would make a dtype
    return dtypes.canonicalize_dtype(leaf.dtype)


def _without_dtype(kind: Any) -> tuple[Any, list[tuple[int, ...]]]:
    leaves, tree = jax.tree.flatten(kind)
    return tree, [tuple(leaf.shape) for leaf in leaves]


def _shown(kind: Any) -> str:
    leaves, tree = jax.tree.flatten(kind)
    return str(jax.tree.unflatten(tree, [_Name(type_name(leaf)) for leaf in leaves]))


class _Name(str):
    """Text that prints inside of a tree without quotes."""

    __slots__ = ()
    __repr__ = str.__str__
