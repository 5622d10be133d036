"""Mixed precision: the dtype in which folds are carried, stated by path, put into the graph before it is scheduled."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

from combinators.arguments import read_name
from combinators.errors import PlanError, SignatureError, message, spelt
from combinators.graphs import walk
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply
from combinators.graphs.scopes import is_inside
from combinators.operations.operation import Operation
from combinators.operations.widening import float_dtype, is_enabled, is_narrower, state_floats, widened
from tapestry_jax.planning.rewrites.operations import with_operations

_ENOUGH = "float32"

Accumulate = tuple[tuple[str, str | None], ...]
"""Scope and dtype name; `""` is the whole program, None leaves folds as they are."""


def read_accumulate(accumulate: Any) -> Accumulate:
    """Normalise `dtype | {scope: dtype | None}`.

    Raises:
      PlanError: for what is no float dtype, or one that this process cannot compute in.
    """
    if accumulate is None:
        return ()
    if not isinstance(accumulate, Mapping):
        return (("", _read(accumulate, "accumulate")),)
    found: dict[Any, Any] = dict(accumulate)  # pyright: ignore[reportUnknownArgumentType]
    return tuple(
        (_read_scope(scope), None if dtype is None else _read(dtype, f"accumulate[{scope!r}]"))
        for scope, dtype in found.items()
    )


def _read_scope(scope: Any) -> str:
    return "" if isinstance(scope, str) and not scope else read_name(scope, "a path in accumulate=", PlanError)


def _read(dtype: Any, where: str) -> str:
    found = float_dtype(dtype)
    if found is None:
        raise PlanError(
            message(
                f"{where} is no float dtype",
                f"got {spelt(dtype)}",
                remedy="Give the dtype in which folds are carried, such as jnp.float32, or a mapping from paths to it.",
            )
        )
    if not is_enabled(found):
        raise PlanError(
            message(
                f"{where} is {found.name}, in which JAX does not compute here",
                remedy='Set jax.config.update("jax_enable_x64", True) first, or carry folds in float32.',
            )
        )
    return found.name


def wide_enough(graph: Graph, dims: Collection[str]) -> dict[str, str] | None:
    """What to carry in float32 where any number of turns adds: folds and scans along `dims` of narrower floats.

    A sum of ones in bfloat16 stays 256 from the 257th turn on; within a turn XLA adds in float32.
    """
    found: dict[str, str] = {}
    for place, node in walk.operations(graph):
        signature, shaped = node.operation.signature, place.graph.shaped(place.index)
        along = {name for dim, name in node.names if dim in signature.fold_dims or dim == node.operation.over}
        if not along.isdisjoint(dims) and any(is_narrower(kind, _ENOUGH) for kind in state_floats(shaped)):
            with suppress(SignatureError):
                widened(node.operation, tuple(place.graph.type_of(ref).struct for ref in node.operands), _ENOUGH)
                found[place.path] = _ENOUGH
    return found or None


def carried(graph: Graph, accumulate: Accumulate) -> Graph:
    """The graph whose folds and scans are carried as `accumulate` says; types, names and paths stay.

    Raises:
      PlanError: for a path that the graph does not have, a dtype that no fold there is narrower than or equal to, or
        a monoid that merges no states of it.
    """
    for scope, dtype in accumulate:
        _check(graph, scope, dtype)

    def change(inner: Graph, node: Apply, path: str) -> Operation:
        dtype = _wanted(path, accumulate)
        return node.operation if dtype is None else _widened(inner, node, path, dtype)

    return with_operations(graph, change) if accumulate else graph


def _widened(graph: Graph, node: Apply, path: str, dtype: str) -> Operation:
    structs = tuple(graph.type_of(ref).struct for ref in node.operands)
    try:
        return widened(node.operation, structs, dtype)
    except SignatureError as error:
        raise PlanError(
            message(
                f"`{path}` cannot be carried in {dtype}",
                str(error),
                remedy=f"Leave it as it is: accumulate={{..., {path!r}: None}}.",
            )
        ) from error


def _wanted(path: str, accumulate: Accumulate) -> str | None:
    """The dtype of the longest scope that holds a path."""
    best: tuple[int, str | None] = (-1, None)
    for scope, dtype in accumulate:
        if is_inside(path, scope) and len(scope) > best[0]:
            best = (len(scope), dtype)
    return best[1]


def _check(graph: Graph, scope: str, dtype: str | None) -> None:
    where = f"accumulate[{scope!r}]" if scope else "accumulate"
    folds = dict(_folds(graph))
    inside = {path: kinds for path, kinds in folds.items() if is_inside(path, scope)}
    if not inside:
        raise PlanError(
            message(
                f"{where} names no fold or scan that is carried in floats",
                f"such are: {', '.join(sorted(folds)[:12]) or 'none'}",
                remedy="Give the path of one of them or of a scope, as graph.show() prints them.",
            )
        )
    kinds = [kind for listed in inside.values() for kind in listed]
    if dtype is not None and not any(kind.name == dtype or is_narrower(kind, dtype) for kind in kinds):
        raise PlanError(
            message(
                f"{where} is {dtype}, which is narrower than what is carried there",
                *(f"{path}: {', '.join(kind.name for kind in listed)}" for path, listed in list(inside.items())[:4]),
                remedy="Give a dtype that holds all values of these, or leave it out.",
            )
        )


def _folds(graph: Graph) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Path and float dtypes of the states of every fold and scan."""
    for place, node in walk.operations(graph):
        kinds = () if node.operation.monoid is None else state_floats(place.graph.shaped(place.index))
        if kinds:
            yield place.path, kinds
