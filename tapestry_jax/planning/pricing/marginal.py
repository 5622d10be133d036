"""The counts of any block of an operation, by arithmetic: what one more index along each dimension costs.

A kernel's cost is linear in each dimension of its index space, for nearly every kernel: twice the rows, twice the
work; whole dimensions, along which it need not be (a transform, a sort), no plan cuts. So the counts at the corners of
a box of sizes give those of every block in it, by interpolation. Dimensions to which all counts are proportional, most
of them, need no corners, and those that always stand together, such as batch and sequence, are one. Where another size
than the corners shows that it does not hold (a scan that works by pieces), each size of block is counted by itself,
once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax

from combinators.errors import TapestryError
from combinators.frozen import dataclass
from combinators.index_space.signature import Signature
from combinators.kernels.coordinates import consecutive
from combinators.operations.dense import Dense
from combinators.operations.execute import run_blocks, states
from combinators.operations.operation import Operation
from combinators.operations.ready import portable, ready
from combinators.operations.shaped import block_structs, shape
from combinators.settings import remembered
from tapestry_jax.planning.pricing.counting.alike import has_rules, is_same
from tapestry_jax.planning.pricing.counting.count import counted
from tapestry_jax.planning.pricing.counting.counts import Counts
from tapestry_jax.planning.pricing.counting.resized import primes_for
from tapestry_jax.planning.pricing.counting.traced import Traced, trace, trace_backward

Struct = jax.ShapeDtypeStruct
Sizes = Mapping[str, int]
Group = tuple[str, ...]
"""Dimensions that stand together wherever they stand."""
_MOST_CORNERS = 4
"""Of so many groups of dimensions, to which not all is proportional, the corners are counted."""
_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Part:
    """What of an operation is priced.

    Attributes:
      gives: `result`; or `state`, where its fold is cut.
      cut: the dimensions that are cut: kernels that need one of them whole do not run.
      platform: what it is lowered for, as kernels for platforms name it.
      by: of the backward pass, the operands whose gradients it computes; empty for the forward pass.
    """

    gives: str
    cut: frozenset[str]
    platform: str = ""
    by: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Marginal:
    """The counts of blocks of one operation.

    Attributes:
      groups: the dimensions along which blocks differ; of a group the product of the sizes counts.
      full: sizes of the largest block, by dimension.
      half: about half of them.
      proportional: groups to which every count is proportional.
      corners: counts at `half` of the first dimension of some of the other groups; empty where they do not tell.
      exact: counts a block of any sizes.
    """

    groups: tuple[Group, ...]
    full: Sizes
    half: Sizes
    proportional: tuple[Group, ...]
    corners: Mapping[tuple[bool, ...], Counts]
    exact: Callable[[tuple[tuple[str, int], ...]], Counts]

    @property
    def names(self) -> tuple[str, ...]:
        """The dimensions along which blocks differ."""
        return tuple(name for group in self.groups for name in group)

    @property
    def is_linear(self) -> bool:
        """Whether blocks are priced by arithmetic."""
        return bool(self.corners)

    def at(self, sizes: Sizes) -> Counts:
        """The counts of a block of these sizes."""
        if not self.corners or any(sizes[name] == 0 for name in self.names):
            return self.exact(tuple(sorted(sizes.items())))
        scale = math.prod(_share(group, sizes, self.full) for group in self.proportional)
        others = [group for group in self.groups if group not in self.proportional]
        weights: list[float] = []
        for group in others:
            low = self.half[group[0]] / self.full[group[0]]
            weights.append((_share(group, sizes, self.full) - low) / (1 - low))
        total: list[float] | None = None
        for corner, counts in self.corners.items():
            part = math.prod(w if high else 1 - w for w, high in zip(weights, corner, strict=True))
            numbers = [part * number for number in counts.numbers]
            total = numbers if total is None else [a + b for a, b in zip(total, numbers, strict=True)]
        first = next(iter(self.corners.values()))
        return first.of(tuple(max(scale * number, 0.0) for number in total or ()))

    def step(self, dim: str, sizes: Sizes) -> Counts:
        """The marginal cost along a dimension: what one more index of it costs a block of these sizes."""
        more, here = self.at({**sizes, dim: sizes[dim] + 1}), self.at(sizes)
        return more.of(tuple(b - a for a, b in zip(here.numbers, more.numbers, strict=True)))


@remembered(maxsize=8192)
def block_counts(
    operation: Operation, operands: tuple[Struct, ...], part: Part, sizes: tuple[tuple[str, int], ...]
) -> Counts:
    """The counts of one block.

    Args:
      operation: any leaf, expanded.
      operands: types of its whole operands.
      part: what of it.
      sizes: of the block, by dimension.
    """
    return marginal(operation, operands, part).at(dict(sizes))


@remembered(maxsize=2048)
def marginal(operation: Operation, operands: tuple[Struct, ...], part: Part) -> Marginal:
    """Count an operation at a few sizes, once."""
    shaped = shape(operation, operands)

    whole = shaped.signature.whole_dims
    full = dict(shaped.sizes)
    names = tuple(name for name, size in full.items() if name not in whole and size > 1)
    exact = lru_cache(maxsize=1024)(_exact(operation, operands, part, {name: full[name] for name in names}))
    half = {name: size // 2 if name in names else size for name, size in full.items()}
    # Each dimension by itself, where those that stand together are not one.
    for groups in dict.fromkeys((_groups(shaped.signature, names), tuple((name,) for name in names))):
        try:
            proportional, corners = _corners(exact, groups, full, half)
        except (TapestryError, TypeError, ValueError):
            # A kernel that takes only some sizes: blocks are counted as they come.
            break
        if corners:
            return Marginal(groups, full, half, proportional, corners, exact)
    return Marginal(tuple((name,) for name in names), full, half, (), {}, exact)


def _groups(signature: Signature, names: Sequence[str]) -> tuple[Group, ...]:
    """Dimensions that the same operands and results have, each on axes of their own."""
    found: dict[Any, list[str]] = {}
    for name in names:
        places: list[int] = []
        for number, operand in enumerate((*signature.operands, *signature.results)):
            inside = [axis for axis in operand.axes if name in axis.names]
            places += [number] * len(inside)
            if operand.coordinate == name or any(axis.name != name for axis in inside):
                # Coordinates, windows and compositions are more than a factor.
                places.append(-1 - names.index(name))
        found.setdefault(tuple(places), []).append(name)
    return tuple(map(tuple, found.values()))


def _share(group: Group, sizes: Sizes, full: Sizes) -> float:
    return math.prod(sizes[name] / full[name] for name in group)


def _corners(
    exact: Callable[[tuple[tuple[str, int], ...]], Counts], groups: tuple[Group, ...], full: Sizes, half: Sizes
) -> tuple[tuple[Group, ...], dict[tuple[bool, ...], Counts]]:
    def at(changed: Sizes) -> Counts:
        return exact(tuple(sorted({**full, **changed}.items())))

    def low(group: Group) -> dict[str, int]:
        return {group[0]: half[group[0]]}

    top = at({})
    # Counts are sums of products of sizes: they shrink with all of them at once only if with each.
    together = {name: size for group in groups for name, size in low(group).items()}
    if _alike(at(together), top, math.prod(half[name] / full[name] for name in together)):
        proportional = groups
    else:
        proportional = tuple(g for g in groups if _alike(at(low(g)), top, half[g[0]] / full[g[0]]))
    others = [group for group in groups if group not in proportional]
    if len(others) > _MOST_CORNERS:
        return (), {}
    corners: dict[tuple[bool, ...], Counts] = {}
    for corner in itertools.product((False, True), repeat=len(others)):
        chosen = [low(group) for group, high in zip(others, corner, strict=True) if not high]
        corners[corner] = at({name: size for each in chosen for name, size in each.items()})
    probe = {name: max(full[name] // 4, 1) for group in groups for name in group}
    found = Marginal(groups, full, half, proportional, corners, exact).at({**full, **probe})
    if any(counts.form != top.form for counts in corners.values()) or not _alike(at(probe), found, 1.0):
        return (), {}
    return proportional, corners


def _alike(counts: Counts, other: Counts, factor: float) -> bool:
    """Whether counts are those of another block, times a factor; which value is the largest may change."""
    if counts.form != other.form:
        return False
    pairs = zip(replace(counts, largest=0.0).numbers, replace(other, largest=0.0).numbers, strict=True)
    return all(math.isclose(a, factor * b, rel_tol=_TOLERANCE, abs_tol=1.0) for a, b in pairs)


def _exact(
    operation: Operation, operands: tuple[Struct, ...], part: Part, cut: Sizes
) -> Callable[[tuple[tuple[str, int], ...]], Counts]:
    """What counts blocks of any sizes: one program at other sizes, where it is the same at all of them; else each.

    Args:
      operation: to count.
      operands: types of the whole ones.
      part: what of it.
      cut: the dimensions along which blocks differ, and their sizes.
    """
    full, anywhere = dict(shape(operation, operands).sizes), replace(part, platform="")

    def traced(sizes: tuple[tuple[str, int], ...]) -> Counts:
        return _of(operation, operands, part, dict(sizes), _traced(operation, operands, anywhere, sizes))

    stay = {size for operand in operands for size in operand.shape} | set(full.values())
    primes = primes_for(cut, stay)
    try:
        program = _traced(operation, operands, anywhere, tuple(sorted({**full, **primes}.items())))
    except Exception:  # noqa: BLE001 (a kernel is anybody's, and so is what it says to a size that it does not take)
        return traced

    def arithmetic(sizes: tuple[tuple[str, int], ...]) -> Counts:
        known = dict(sizes)
        others = None if program is None else program.at({prime: known[name] for name, prime in primes.items()})
        return _of(operation, operands, part, known, others)

    whole = tuple(sorted(full.items()))
    if part.by and _is_told_forwards(operation, operands, replace(anywhere, by=()), full, primes):
        return arithmetic
    found, seen = arithmetic(whole), traced(whole)
    same = found.form == seen.form and all(
        math.isclose(a, b, rel_tol=_TOLERANCE, abs_tol=1.0) for a, b in zip(found.numbers, seen.numbers, strict=True)
    )
    return arithmetic if same else traced


def _is_told_forwards(
    operation: Operation, operands: tuple[Struct, ...], forward: Part, full: Sizes, primes: Sizes
) -> bool:
    """Whether the gradients at both sizes are one program: JAX makes them of one program, and by its own rules."""
    asked = ({**full, **primes}, full)
    small, whole = (_traced(operation, operands, forward, tuple(sorted(sizes.items()))) for sizes in asked)
    assert small is not None and whole is not None
    told = small.at({prime: full[name] for name, prime in primes.items()})
    return not has_rules(whole.jaxpr) and is_same(told.jaxpr, whole.jaxpr)


@remembered(maxsize=512)
def _traced(
    operation: Operation, operands: tuple[Struct, ...], part: Part, sizes: tuple[tuple[str, int], ...]
) -> Traced | None:
    """The program of a block of these sizes, the same on all platforms: of a part that names none."""
    shaped = shape(operation, operands)
    blocks = block_structs(shaped.signature, operands, dict(sizes))
    if part.by:
        forward = _traced(operation, operands, replace(part, by=()), sizes)
        assert forward is not None
        arrays = [place for place, operand in enumerate(shaped.signature.operands) if operand.coordinate is None]
        return trace_backward(forward, blocks, [arrays[place] for place in part.by])
    function = states if part.gives == "state" else run_blocks
    chosen = ready(portable(shaped), part.cut)
    # As blocks run, whose coordinates follow one another; in stripes they are searched, which is not priced.
    chosen = replace(chosen, operation=replace(chosen.operation, kernel=consecutive(chosen.operation.kernel)))

    def run(*arrays: Any) -> list[Any]:
        return list(function(chosen, arrays))

    return trace(run, blocks)


def _of(operation: Operation, operands: tuple[Struct, ...], part: Part, sizes: Sizes, program: Traced | None) -> Counts:
    """The counts of a block of these sizes, whose program this is."""
    shaped = shape(operation, operands)
    blocks = block_structs(shaped.signature, operands, dict(sizes))
    counts = counted(program, part.platform)
    if not _runs_as_one(shaped.operation, blocks, part):
        return counts
    if part.by:
        return replace(counts, inner=0.0, largest=0.0, kept=0.0, beside=0.0, stacked=0.0)
    # It reads its operands and writes its results.
    heads, reads = ("apart",) * len(counts.heads), (1.0,) * len(blocks)
    return Counts(counts.products, counts.other, counts.transcendental, reads=reads, heads=heads, kernels=1)


def _runs_as_one(operation: Operation, blocks: Sequence[Struct], part: Part) -> bool:
    """Whether a kernel of the platform stands in, such as a flash attention: it keeps on the chip what it makes."""
    for entry in operation.dense:
        if not isinstance(entry, Dense):
            return False
        fits = entry.gives == part.gives and (entry.platforms is None or part.platform in entry.platforms)
        if fits and entry.may_run(operation, blocks, part.cut):
            return True
    return False
