"""What the parts of a frame make of which leaves: dimensions that are mapped over say nothing by their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from combinators.frozen import dataclass
from combinators.merging.blocks import Axes, shared_axes
from combinators.settings import remembered
from tapestry_jax.planning.derivatives.dependence import Matrix, dependence, passed_through
from tapestry_jax.planning.folding.merges import Merge, mapped_frame

Struct = jax.ShapeDtypeStruct
_SEVERAL = 2


@dataclass(frozen=True)
class Framed:
    """The parts of a frame on one block.

    Attributes:
      summary: types of what is merged first.
      references: how many leaves the frame has.
      addends: types of what is added up then.
      summarised: which leaves of the state each leaf of the summary depends on.
      located: which leaves of the summary each leaf of the frame does.
      expressed: which leaves of the state, then of the frame, each addend does.
      restored: which leaves of the frame, then which addends, each leaf of the state does.
      as_summary: for each leaf of the summary the leaf of the state that it is unchanged, if any.
      as_addends: the same of the addends.
    """

    summary: tuple[Struct, ...]
    references: int
    addends: tuple[Struct, ...]
    summarised: Matrix
    located: Matrix
    expressed: Matrix
    restored: Matrix
    as_summary: tuple[int | None, ...]
    as_addends: tuple[int | None, ...]


def framed(merge: Merge, carrier: Sequence[Axes], state: Sequence[Struct]) -> Framed:
    """Find them: traced once for blocks that differ in the sizes of what is mapped over alone.

    Args:
      merge: by a frame.
      carrier: the axes of the leaves.
      state: their types.
    """
    shared = shared_axes(carrier)
    found = _framed(merge, tuple(carrier), tuple(of_few_cells(carrier, state)))
    sizes = dict(zip(carrier[0], state[0].shape, strict=True)) if carrier else {}
    lengths = tuple(sizes[name] for name in shared)

    def at_size(structs: Sequence[Struct]) -> tuple[Struct, ...]:
        return tuple(Struct((*lengths, *each.shape[len(shared) :]), each.dtype) for each in structs)

    return Framed(
        at_size(found.summary),
        found.references,
        at_size(found.addends),
        found.summarised,
        found.located,
        found.expressed,
        found.restored,
        found.as_summary,
        found.as_addends,
    )


def of_few_cells(carrier: Sequence[Axes], state: Sequence[Any]) -> list[Struct]:
    """The types of a smaller block, of which all that is mapped from a cell says the same."""
    shared = shared_axes(carrier)
    return [
        Struct(
            tuple(min(s, _SEVERAL) if axis in shared else s for s, axis in zip(leaf.shape, axes, strict=True)),
            leaf.dtype,
        )
        for leaf, axes in zip(state, carrier, strict=True)
    ]


@remembered(maxsize=4096)
def _framed(merge: Merge, carrier: tuple[Axes, ...], state: tuple[Struct, ...]) -> Framed:
    leaves, frame = list(state), mapped_frame(merge, carrier, state)
    summary: list[Any] = jax.eval_shape(frame.summary, leaves)
    reference: list[Any] = jax.eval_shape(frame.at, summary)
    addends: list[Any] = jax.eval_shape(frame.express, leaves, reference)
    return Framed(
        tuple(Struct(each.shape, each.dtype) for each in summary),
        len(reference),
        tuple(Struct(each.shape, each.dtype) for each in addends),
        dependence(frame.summary, leaves),
        dependence(frame.at, summary),
        dependence(frame.express, leaves, reference),
        dependence(frame.restore, reference, addends),
        passed_through(frame.summary, leaves),
        passed_through(frame.express, leaves, reference),
    )
