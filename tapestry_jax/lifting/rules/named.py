"""Rules write axes as names: what two tensors have under one name is one dimension."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from combinators.merging.monoid import Monoid
from combinators.operations.operation import Operation
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk, axes, coordinates, signature


def apply(
    walk: Walk,
    name: str,
    kernel: Callable[..., Any],
    operands: Sequence[tuple[Atom, Sequence[str]]],
    results: Sequence[tuple[Any, Sequence[str]]],
    *,
    whole: Collection[str] = (),
    at: Sequence[str] = (),
    monoid: Monoid | None = None,
    **options: Any,
) -> list[Atom]:
    """An operation of bare dimensions.

    Args:
      walk: that writes it.
      name: for paths.
      kernel: right for a block of any size.
      operands: each with a name for every axis.
      results: the type of each, with a name for every axis.
      whole: dimensions that are not cut.
      at: dimensions whose coordinates are operands, behind the others.
      monoid: of what only operands have.
      options: further fields of the operation.
    """
    sizes: dict[str, int] = {}
    for out, names in results:
        sizes |= dict(zip(names, out.shape, strict=True))
    for atom, names in operands:
        for dim in set(names) - set(at):
            sizes.pop(dim, None)
        sizes |= {dim: size for dim, size in zip(names, walk.shape(atom), strict=True) if dim in at}
    everywhere = {dim for _, names in (*operands, *results) for dim in names} | set(at)

    def written(shape: Sequence[int], names: Sequence[str]) -> Any:
        return axes(shape, names, [axis for axis, dim in enumerate(names) if dim in whole], everywhere)

    told = signature(
        [*(written(walk.shape(atom), names) for atom, names in operands), *coordinates(*at)],
        [written(out.shape, names) for out, names in results],
    )
    known = {dim for _, names in operands for dim in names}
    given = tuple(sorted((dim, size) for dim, size in sizes.items() if dim not in known))
    folds = monoid if told.fold_dims or options.get("over") else None
    if folds is None:
        options = {}
    operation = Operation(told, kernel, folds, sizes=given, name=name, **options)
    return walk.leaf(operation, [atom for atom, _ in operands], [out for out, _ in results])


def plain_names(rank: int) -> list[str]:
    """A name for every axis."""
    return [f"d{axis}" for axis in range(rank)]
