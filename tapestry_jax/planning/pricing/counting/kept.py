"""What a forward pass has in memory for its backward pass, beside operands and results of the kernel."""

from __future__ import annotations

from typing import Any

from combinators.index_space.tensor_type import is_inexact
from tapestry_jax.planning.pricing.counting.opened import Program, Step
from tapestry_jax.planning.pricing.counting.primitives import PRODUCTS, is_root


def kept(program: Program, cotangents: int, results: frozenset[Any] = frozenset()) -> float:
    """Bytes that stay where no loop stacks them.

    Elementwise work is done again where it is read, but for what stands in memory anyway, as products read it: a
    product of the backward pass reads of the forward pass what a product there has read. What that is computed from is
    not asked for.

    Args:
      program: of a backward pass; the forward pass stands in it.
      cotangents: how many of its inputs are cotangents.
      results: of the forward pass, which are kept as what they are by whoever reads them.
    """
    forward, read, by_products = _forward(program, cotangents)
    own, total = results.union(program.inputs), 0.0
    for step in reversed(forward):
        wanted = read.intersection(step.makes)
        if not wanted:
            continue
        if is_root(step.name) or not by_products.isdisjoint(step.makes):
            total += sum(program.types[key] for key in wanted - own)
        else:
            read.update(step.reads)
    return float(total)


def stacked(program: Program, cotangents: int) -> float:
    """Bytes that a loop keeps for its backward pass of what the forward pass makes, beside operands and results.

    All that gradients read is kept, be it elementwise work or not, but for what is the same in every turn.

    Args:
      program: of a backward pass; the forward pass stands in it.
      cotangents: how many of its inputs are cotangents.
    """
    forward, read, _ = _forward(program, cotangents)
    # Coordinates, and masks of them alone, are the same in every turn.
    varies = {each for each in program.inputs[cotangents:] if is_inexact(each.aval.dtype)}
    sizes: list[float] = []
    for step in forward:
        if not varies.isdisjoint(step.reads):
            varies.update(step.makes)
            # Conditions and loops give operands on as well, which are kept once: the largest alone is surely new.
            sizes += sorted(program.types[key] for key in step.makes if key in read)[-1:]
    for result in program.inputs[:cotangents]:
        # A result that gradients read is kept as what it is: once.
        if program.types[result] in sizes:
            sizes.remove(program.types[result])
    return float(sum(sizes))


def _forward(program: Program, cotangents: int) -> tuple[list[Step], set[Any], set[Any]]:
    """The steps of the forward pass, and what the others read, all of them and products alone."""
    reached = set(program.inputs[:cotangents])
    forward: list[Step] = []
    read: set[Any] = set()
    by_products: set[Any] = set()
    for step in program.steps:
        if reached.isdisjoint(step.reads):
            forward.append(step)
            continue
        read.update(step.reads)
        reached.update(step.makes)
        if step.name in PRODUCTS:
            by_products.update(step.reads)
    return forward, read, by_products
