"""Whether a kernel does along the dimensions of its signature what it says: each cell by itself, or parts that merge.

A plan cuts a dimension, and the kernel sees a part of its cells. One that sums over what its result carries, numbers it
or divides by how many there are gives other numbers then; so does a mean that is merged by a sum. It is read off the
kernel's program, as far as that tells; the laws of a piece (`laws.examine`) run it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from combinators.declared.flow import OTHER, POSITION, Flow, Order, Tag, dim_of, ordered
from combinators.declared.followed import followed
from combinators.declared.numbers import differing, divides, may_count, more_than, steps_of
from combinators.declared.rules import LONGEST
from combinators.errors import SignatureError, message
from combinators.frozen import dataclass
from combinators.index_space.axis import Axis
from combinators.index_space.signature import Signature

# Their states are single numbers.
_ON_NUMBERS = (jnp.add, jnp.multiply, jnp.minimum, jnp.maximum)


@dataclass(frozen=True)
class Claim:
    """What is said of a kernel.

    Attributes:
      name: what it is, as the error calls it.
      signature: without an ellipsis.
      sizes: of its dimensions.
      over: the dimension that is scanned; None where none is.
      combine: merges what is folded; None where nothing is.
    """

    name: str
    signature: Signature
    sizes: Mapping[str, int]
    over: str | None = None
    combine: Callable[..., Any] | None = None


def check_declared(
    claim: Claim,
    program: Any,
    results: Sequence[Sequence[str | None]],
    again: Callable[[dict[str, int]], Any],
) -> None:
    """Refuse a kernel whose program mixes cells along a dimension that its result carries.

    Args:
      claim: what is said of it.
      program: the closed jaxpr of the kernel on blocks of these sizes.
      results: for every leaf that the kernel gives the dimensions along its axes; None for an axis that is none.
      again: gives the program on blocks of other sizes.

    Raises:
      SignatureError: when the signature is false, as far as the program tells.
    """
    dims = carried(claim, results)
    flows = followed(program, list(operands_of(claim, dims)), dims) if dims else []
    for flow, names in zip(flows, results, strict=False):
        for axis, name in enumerate(names):
            if name in dims and name not in flow.lost and (problem := problem_of(flow, axis, name)) is not None:
                raise _false(claim, name, problem)
    steps = steps_of(program.jaxpr)
    for name in sorted(dims | folded(claim)):
        if not may_count(name, claim.sizes, steps):
            continue
        # A number may be there by chance: with more cells it is another one, or it is no size.
        for more in more_than(claim.sizes[name]):
            other = again({**claim.sizes, name: more})
            changed = [] if other is None else differing(steps, steps_of(other.jaxpr))
            if name in dims and changed:
                raise _false(claim, name, f"it reads how many cells of `{name}` its block has")
            if name not in dims and len(changed) == 1 and divides(*changed[0], claim.sizes[name], more):
                raise _mean(claim, name)


def carried(claim: Claim, results: Sequence[Sequence[str | None]]) -> frozenset[str]:
    """The dimensions that are judged: carried by results, and an axis of their own wherever they stand."""
    signature = claim.signature
    axes = [axis for tensor in (*signature.operands, *signature.results) for axis in tensor.axes]
    apart = {name for axis in axes if axis.name is None and not _is_reversed(axis) for name in axis.names}
    apart |= {name for name in signature.map_dims if claim.sizes[name] > LONGEST and _is_turned(claim, name)}
    twice = {name for tensor in signature.operands for name in tensor.names if tensor.names.count(name) > 1}
    twice |= {name for names in results for name in names if name is not None and names.count(name) > 1}
    dims = set(signature.map_dims) - apart - twice - {claim.over}
    # What is empty mixes nothing, whatever is done with it.
    return frozenset(dim for dim in dims if claim.sizes[dim] > 1 and all(claim.sizes.values()))


def operands_of(claim: Claim, dims: frozenset[str]) -> Iterator[tuple[Tag, ...]]:
    """What lies along the axes of each operand, coordinates included."""
    for operand in claim.signature.operands:
        if operand.coordinate is not None:
            yield (operand.coordinate if operand.coordinate in dims else OTHER,)
        else:
            yield tuple(_tag(axis, dims, claim.sizes) for axis in operand.axes)


def _tag(axis: Axis, dims: frozenset[str], sizes: Mapping[str, int]) -> Tag:
    if axis.kind == "one":
        return None
    if _is_reversed(axis) and axis.names[0] in dims:
        size = sizes[axis.names[0]]
        return ordered(axis.names[0], range(size)[::-1], size)
    return axis.name if axis.name in dims else OTHER


def _is_reversed(axis: Axis) -> bool:
    """Whether an axis is one dimension backwards, as `(10-t)` is: its block holds the cells of `t` from the last on."""
    return axis.kind == "affine" and len(axis.terms) == 1 and axis.terms[0].coefficient == -1


def _is_turned(claim: Claim, name: str) -> bool:
    return any(_is_reversed(axis) and name in axis.names for each in claim.signature.operands for axis in each.axes)


def problem_of(flow: Flow, axis: int, name: str) -> str | None:
    """What is wrong with an axis of a result that should be a dimension; None where nothing is known to be."""
    tag = flow.axes[axis]
    if (how := flow.reads.get(name)) is not None or (how := flow.one_of(name)) is not None:
        return f"it uses {how} along `{name}`"
    if tag == POSITION:
        return f"its cells differ by their position along `{name}`"
    if isinstance(tag, Order) and tag.dim == name:
        return f"it gives other cells of `{name}` than it takes, or in another order"
    if (dim := dim_of(tag)) is not None and dim != name:
        return f"it gives `{dim}` along axis {axis} of its result" if dim not in flow.lost else None
    others = [place for place, other in enumerate(flow.axes) if dim_of(other) == name and place != axis]
    return f"it gives `{name}` along axis {others[0]} of its result, not {axis}" if others else None


def folded(claim: Claim) -> frozenset[str]:
    """The dimensions that are folded by arithmetic on numbers, which have no count beside them."""
    if claim.over is not None or claim.combine not in _ON_NUMBERS:
        return frozenset()
    return frozenset(name for name in claim.signature.fold_dims if claim.sizes[name] > 1)


def _mean(claim: Claim, name: str) -> SignatureError:
    return SignatureError(
        message(
            f"the kernel of `{claim.name}` divides by how many cells of `{name}` its block has",
            f"signature {claim.signature}",
            f"parts of a mean do not add up: a plan that cuts `{name}` would merge means of its parts",
            remedy=f"Sum, and divide what the fold gives; or use `aggregators.Mean`; or write [{name}].",
        )
    )


def _false(claim: Claim, name: str, problem: str) -> SignatureError:
    called = "..." if name.startswith("...") else name
    remedy = f"Write [{called}] where the kernel needs all of it (it is not cut then), or fold it with a monoid."
    if "position" in problem:
        place = "@q" if called == "..." else f"@{called}"
        remedy = f"Take places as an operand `{place}`, and random numbers from tp.random. {remedy}"
    elif "how many" in problem:
        remedy = f"Give the kernel the number, as an operand or by functools.partial. {remedy}"
    elif _is_turned(claim, name):
        remedy = f"A block lies as its tensor does: turn what is read backwards along `{called}`, as `x[::-1]` does."
    return SignatureError(
        message(
            f"the kernel of `{claim.name}` does not act on each cell of `{called}` by itself",
            f"signature {claim.signature}",
            problem.replace(f"`{name}`", f"`{called}`"),
            remedy=remedy,
        )
    )
