"""Which values of a recording matter: those that reach anything but what layers say of this one call."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from flax import nnx

from combinators.graphs.nodes import Ref
from combinators.recording.pending import Pending, PendingLoop


class Auxiliary(nnx.Variable[Any]):
    """What a layer says beside its result: a loss, a count. The forward pass writes it, for this call alone."""


def mattering(nodes: Sequence[Pending], given: Collection[Ref], silent: Collection[Ref]) -> set[Ref]:
    """The results that reach something else than `silent` ones, and those that nobody reads.

    Args:
      nodes: of a recording, in order.
      given: results that matter, whoever reads them.
      silent: results that are only told; where something else reads one too, it matters.
    """
    read = {ref for pending in nodes for ref in pending.operands}
    found = set[Ref](given)
    for number in range(len(nodes) - 1, -1, -1):
        pending = nodes[number]
        results = [Ref(number, output) for output in range(len(pending.results))]
        if pending.kind != "input":
            found |= {ref for ref in results if ref not in read and ref not in silent}
        if any(ref in found for ref in results):
            found |= set(_needed(pending, [ref in found for ref in results]))
    return found


def inside(loop: PendingLoop, is_needed: Sequence[bool]) -> set[Ref]:
    """The same of a loop's body.

    Args:
      loop: whose body.
      is_needed: of every result of the loop, whether it matters.
    """
    carried, stacked = loop.outputs[: loop.carries], zip(loop.outputs, is_needed, strict=True)
    # What is carried reaches the next turn.
    needed = {value.ref for value in carried} | {value.ref for value, is_so in stacked if is_so}
    silent = {value.ref for value in loop.outputs} - needed
    return mattering(loop.nodes, needed, silent)


def _needed(pending: Pending, is_needed: Sequence[bool]) -> Sequence[Ref]:
    """The operands of a node that matters."""
    if pending.loop is None:
        return pending.operands
    found = inside(pending.loop, is_needed)
    inputs = [number for number, node in enumerate(pending.loop.nodes) if node.kind == "input"]
    matters = [at < pending.loop.carries or Ref(number, 0) in found for at, number in enumerate(inputs)]
    return [ref for ref, is_so in zip(pending.operands, matters, strict=True) if is_so]
