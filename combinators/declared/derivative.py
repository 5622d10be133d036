"""Whether a derivative that somebody wrote does along the dimensions of a signature what the kernel does.

The derivative of a kernel is a kernel of the transposed signature: of cells that it mapped each by itself, and what an
operand does not carry is folded by a sum. Derivatives that JAX makes of a kernel that does what its signature says are
so. One that clips, averages or normalises what it has summed over rows is not: a sum of clipped parts is not the sum,
clipped. It is read off the program of the derivative, as far as that tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from combinators.declared.backward import backward, smooth_of
from combinators.declared.check import Claim, carried, folded, operands_of, problem_of
from combinators.declared.flow import OTHER, Flow
from combinators.declared.followed import followed
from combinators.declared.numbers import differing, divides, may_count, more_than, steps_of
from combinators.declared.parts import parts


def false_derivative(
    claim: Claim,
    kernel: Callable[..., Any],
    kinds: Callable[[Mapping[str, int]], Sequence[Any]],
    results: Sequence[Sequence[str | None]],
) -> dict[str, str]:
    """What is false about the derivative of a kernel, for each dimension along which something is.

    Args:
      claim: what is said of the kernel.
      kernel: blocks to a pytree of leaves.
      kinds: gives the types of its blocks for sizes.
      results: for every leaf that it gives the dimensions along its axes.

    Returns:
      Dimension to problem; empty where nothing is known to be false.
    """
    dims = _judged(claim, results)
    if not dims:
        return {}
    types = kinds(claim.sizes)
    program, count = backward(kernel, types)
    smooth = smooth_of(list(types))
    # Coordinates tell what they choose; numbers choose by chance, here and there as the whole does.
    are_places = [operand.coordinate is not None for operand in claim.signature.operands]
    operands = [Flow(axes, told=told) for axes, told in zip(operands_of(claim, dims), are_places, strict=True)]
    # Cotangents are of the last results: of those that have one.
    given = [
        Flow(tuple(name if name in dims else OTHER for name in names), told=False)
        for names in _moving(kernel, types, results)
    ]
    if len(given) != count:
        return {}
    names = [operands[at].axes for at in smooth]
    flows = followed(program, [*operands, *given], dims)
    found = dict[str, str]()
    for dim in sorted(dims):
        for problem in _problems(program, [*operands, *given], flows, names, dim, dims):
            found.setdefault(dim, problem)
        if dim not in found and _counts(claim, kernel, kinds, program, dim):
            found[dim] = f"it reads how many cells of `{dim}` its block has"
    return found


def _judged(claim: Claim, results: Sequence[Sequence[str | None]]) -> frozenset[str]:
    dims = frozenset(dim for dim in carried(claim, results) if all(dim in names for names in results))
    # Cotangents of a sum are those of its parts; those of other states are not.
    return dims | (_apart(claim) if claim.combine is jnp.add else frozenset())


def _apart(claim: Claim) -> frozenset[str]:
    """The folded dimensions that are an axis of their own wherever they stand."""
    tensors = claim.signature.operands
    composed = {name for tensor in tensors for axis in tensor.axes if axis.name is None for name in axis.names}
    twice = {name for tensor in tensors for name in tensor.names if tensor.names.count(name) > 1}
    return frozenset(folded(claim) - composed - twice) if all(claim.sizes.values()) else frozenset()


def _moving(
    kernel: Callable[..., Any], types: Sequence[Any], results: Sequence[Sequence[str | None]]
) -> list[Sequence[str | None]]:
    return [results[at] for at in smooth_of(jax.eval_shape(kernel, *types))]


def _problems(
    program: Any,
    given: Sequence[Flow],
    flows: Sequence[Flow],
    names: Sequence[Sequence[Any]],
    dim: str,
    dims: frozenset[str],
) -> list[str]:
    found = list[str]()
    for flow, part, axes in zip(flows, parts(program, given, dim, dims), names, strict=True):
        if dim in axes:
            problem = None if dim in flow.lost else problem_of(flow, list(axes).index(dim), dim)
        else:
            problem = part.problem
        found += [] if problem is None else [problem]
    return found


def _counts(
    claim: Claim,
    kernel: Callable[..., Any],
    kinds: Callable[[Mapping[str, int]], Sequence[Any]],
    program: Any,
    dim: str,
) -> bool:
    """Whether it reads how many cells of a dimension its block has; where these are folded, whether it divides so."""
    steps = steps_of(program.jaxpr)
    if not may_count(dim, claim.sizes, steps):
        return False
    for more in more_than(claim.sizes[dim]):
        try:
            other, _ = backward(kernel, kinds({**claim.sizes, dim: more}))
        except Exception:  # noqa: BLE001 - a user's kernel may refuse other sizes in any way
            continue
        changed = differing(steps, steps_of(other.jaxpr))
        is_folded = dim in claim.signature.fold_dims
        if changed and (not is_folded or (len(changed) == 1 and divides(*changed[0], claim.sizes[dim], more))):
            return True
    return False
