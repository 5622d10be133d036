"""Whether a kernel is right for a part of its index space: its shapes there, and numbers where it reads sizes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from combinators.errors import KernelError, message
from combinators.index_space.extent import axis_size
from combinators.kernels.captured import program_at
from combinators.merging.blocks import combine_blocks
from combinators.operations.execute import present
from combinators.operations.results import Struct
from combinators.operations.rules import is_merged_by
from combinators.operations.shaped import DOUBLES, Shaped, block_structs, is_written
from combinators.settings import settings

if TYPE_CHECKING:
    from combinators.claims.cut import Boxed

_TAKE_SIZES = "Take sizes from the blocks' shapes and places from coordinates (`@dim`), or do not cut these axes."
_CHOOSE_OUTSIDE = (
    "Choose by sizes outside of the kernel (functools.partial), write [dim] for what it needs whole, "
    "or do not cut these axes."
)
_COMPUTE_ONLY = (
    "Compute in jax.pure_callback, which is held to its boxes, print with jax.debug.print, write [dim] for what it "
    "needs whole, or do not cut these axes."
)
# Of sorted or distinct operands the program itself may tell; of what else is true of data it cannot.
_WRITE_OR_KEEP = (
    "Write it for any data (`x.max(0)`, where sorted `x[-1]` would do; `jnp.searchsorted` and `unique_indices=True` "
    "say what they take; `jax.vmap` ends a loop for each row), or do not cut these axes."
)

_EACH_BY_ITSELF = (
    "Choose for each cell (`jnp.where`; `jax.vmap` makes it of a choice and ends a loop for each row), write [dim] for "
    "what it needs whole, or do not cut these axes."
)
_CHOOSE_BEHIND = (
    "Choose where all is folded (a Map behind the fold, `present` of an aggregator) or for each cell before it, write "
    "[dim] for what it needs whole, or do not cut these axes."
)
_FROM_OPERANDS = (
    "Compute from operands alone: random numbers come from tp.random, places from coordinates (`@dim`), "
    "and what changes is an operand."
)

_ACTS, _IMPURE, _PULLS, _UNTOLD = "acts", "impure", "pulls back", "untold"


def check_box(shaped: Shaped, leaves: Sequence[Any], sizes: Mapping[str, int], *, is_state: bool) -> None:
    """Hold what a kernel gives for an index box of `sizes` against its signature.

    A kernel that holds sizes of its own (`jnp.arange(3)`) fits the whole index space, and no part of it.

    Args:
      shaped: the operation.
      leaves: what the kernel gave: a state, or results.
      sizes: of the box.
      is_state: whether they are leaves of a state.

    Raises:
      KernelError: when a leaf has another shape than the box, or another dtype.
    """
    named = shaped.carrier if is_state else [tuple(map(str, axes)) for axes in shaped.result_axes]
    wrong = [
        f"it gives ({' '.join(axes)}) the shape {found}, and not {expected}"
        for axes, found, expected in zip(
            named, map(jnp.shape, leaves), _box_shapes(shaped, sizes, is_state=is_state), strict=False
        )
        if found != expected
    ]
    known = shaped.state if is_state else shaped.results
    others = [
        f"it gives ({' '.join(axes)}) the dtype {leaf.dtype}, and not {struct.dtype}"
        for axes, leaf, struct in zip(named, leaves, known, strict=False)
        if hasattr(leaf, "dtype") and leaf.dtype != struct.dtype
    ]
    if others and not wrong and shaped.known.get(DOUBLES, now := bool(settings()["enable_x64"])) != now:
        raise _traced_otherwise(shaped)
    wrong += others
    if wrong or len(leaves) != len(named):
        raise not_of_any_size(shaped, sizes, *wrong)


def _traced_otherwise(shaped: Shaped) -> KernelError:
    now = bool(settings()["enable_x64"])
    return KernelError(
        message(
            f"`{shaped.operation.name}` was traced where jax_enable_x64 was {not now}, and it is {now} now",
            f"signature {shaped.signature}",
            "kernels give other dtypes than the program was told, and plans made of it place",
            remedy="Switch it before tracing, or trace and plan again.",
        )
    )


def check_numbers(
    shaped: Shaped, kernel: Callable[..., Any], blocks: Sequence[Any], sizes: Mapping[str, int], *, is_state: bool
) -> None:
    """Refuse a kernel that gives other numbers for an index box of `sizes` than for the whole index space.

    Only kernels that hold code of a user are asked, once for each box.

    Args:
      shaped: the operation.
      kernel: one of its kernels.
      blocks: what it is given, or the types of that.
      sizes: of the box.
      is_state: whether it gives a state.

    Raises:
      KernelError: when both, run on a few numbers, differ by more than rounding.
    """
    # Here, not at the top: a library that is imported need not load it.
    from combinators.claims.provenance import holds_code
    from combinators.merging.foreign import is_foreign

    known = shaped.known
    asked = "holds code", id(kernel)
    if asked not in known:
        is_own, counts = holds_code(kernel)
        monoid = shaped.operation.monoid
        if not is_own and monoid is not None and is_state and shaped.operation.over is None:
            # What a fold's blocks come to is up to its monoid as well.
            # What stands in for a kernel of this library folds as that one does.
            said = {is_merged_by(each, monoid) for each in (kernel, shaped.operation.kernel)}
            is_own = counts = is_foreign(monoid) or said == {None}
        # Kept, since what is made for a plan might be another one at the same place otherwise.
        known[asked] = kernel, is_own, counts
    _, is_own, counts = known[asked]
    box = "differs", id(kernel), tuple(sizes.items()), is_state
    if is_own and box not in known:
        types = [Struct(block.shape, block.dtype) for block in blocks]
        here = _traced_here(shaped, kernel, types, sizes)
        # Few kernels are asked, so this is loaded by few programs.
        from combinators.claims.outside import outside

        known[box] = outside(partial(_differs, shaped, kernel, types, sizes, is_state, counts, here))
    if known.get(box) == _IMPURE:
        raise KernelError(
            message(
                f"the kernel of `{shaped.operation.name}` is no function of its operands: "
                "it is another program each time, or where a plan runs it",
                f"signature {shaped.signature}",
                f"box {', '.join(f'{name}={size}' for name, size in sizes.items())}",
                "it draws numbers by NumPy or Python, counts its calls, or reads the mesh",
                remedy=_FROM_OPERANDS,
            )
        )
    if known.get(box) == _ACTS:
        raise KernelError(
            message(
                f"the kernel of `{shaped.operation.name}` does more than compute, and is cut: "
                "how often it does that, and for which blocks, would be up to the plan.",
                f"signature {shaped.signature}",
                f"box {', '.join(f'{name}={size}' for name, size in sizes.items())}",
                remedy=_COMPUTE_ONLY,
            )
        )
    if known.get(box) == _UNTOLD:
        folds = is_state and shaped.operation.over is None
        chooses = (
            "it chooses by what it has folded (`jnp.where`, `jnp.clip`, `jax.nn.sigmoid`, `jax.lax.cond`, a loop)"
            if folds
            else "cells choose together which way it takes (`jax.lax.cond`, a loop, what they come to)"
        )
        raise not_of_any_size(
            shaped,
            sizes,
            f"{chooses}; of all that was tried such boxes chose as the whole does, so whether they come to the same is "
            "not known",
            remedy=_CHOOSE_BEHIND if folds else _EACH_BY_ITSELF,
        )
    if found := known.get(box):
        gives = "pulls back" if found == _PULLS else "gives"
        raise not_of_any_size(
            shaped,
            sizes,
            ("it may read how many cells its block has" if counts else "it does not take each cell by itself")
            + f": such boxes do not come to what it {gives} for "
            + ", ".join(f"{name}={size}" for name, size in shaped.sizes.items() if size != sizes[name]),
            remedy=_CHOOSE_OUTSIDE if counts else _WRITE_OR_KEEP,
        )


def _traced_here(shaped: Shaped, kernel: Callable[..., Any], types: Sequence[Struct], sizes: Mapping[str, int]) -> Any:
    """The program of a kernel where a plan traces it: that of a function of its operands is the same elsewhere."""
    pairs = zip(shaped.signature.operands, types, strict=True)
    arrays = [each for operand, each in pairs if operand.coordinate is None]
    return program_at(kernel, block_structs(shaped.signature, arrays, dict(sizes)))


def _differs(
    shaped: Shaped,
    kernel: Callable[..., Any],
    types: Sequence[Struct],
    sizes: Mapping[str, int],
    is_state: bool,
    counts: bool,
    here: Any,
) -> bool | str:
    # Here, not at the top: see above.
    from combinators.choosing.choices import UNTOLD
    from combinators.claims.boxed import differs
    from combinators.claims.pulled import pulls_otherwise
    from combinators.declared.backward import has_stopped
    from combinators.declared.check import Claim
    from combinators.declared.programs import alike_but_sizes, is_same
    from combinators.declared.runnable import is_acting
    from combinators.declared.settled import is_settled

    operation = shaped.operation
    claim = Claim(operation.name, shaped.signature, shaped.sizes, operation.over)
    names = shaped.carrier if is_state else [[axis.name for axis in axes] for axes in shaped.result_axes]
    native = operation.monoid.native if is_state and operation.monoid is not None else None

    def settled(program: Any, cut: Collection[str]) -> bool:
        return is_settled(claim, program, names, cut, native)

    apart = _boxed(shaped, kernel, types, is_state).at(dict(sizes)) if here is not None else None
    if apart is not None and not is_same(here, apart):
        return _IMPURE
    boxed = _asked(shaped, kernel, types, is_state)
    whole = boxed.at(dict(shaped.sizes))
    if whole is not None and is_acting(whole) and dict(sizes) != dict(shaped.sizes):
        return _ACTS
    if whole is not None and _takes_cells(shaped, kernel, whole):
        return False
    if found := differs(boxed, sizes, counts=counts, settled=settled):
        return _UNTOLD if found == UNTOLD else True
    if whole is None:
        return False
    cut = [dim for dim, size in shaped.sizes.items() if sizes[dim] != size]
    # What it chooses by sizes or places may be what has a derivative.
    chosen = counts and (part := boxed.at(dict(sizes))) is not None and not alike_but_sizes(whole, part)
    if chosen or (has_stopped(whole) and not settled(whole, cut)):
        found = pulls_otherwise(boxed, sizes)
        return _UNTOLD if found == UNTOLD else _PULLS if found else False
    return False


def derivative_problem(
    shaped: Shaped, kernel: Callable[..., Any], blocks: Sequence[Any], sizes: Mapping[str, int], *, is_state: bool
) -> str:
    """Why a kernel may not pull back from boxes of `sizes` what it does from its whole index space; empty if it may.

    Only kernels that hold code of a user are asked, once for each box.

    Args:
      shaped: the operation.
      kernel: one of its kernels.
      blocks: what it is given, or the types of that.
      sizes: of the box.
      is_state: whether it gives a state.
    """
    # Here, not at the top: a library that is imported need not load it.
    from combinators.choosing.choices import UNTOLD
    from combinators.claims.outside import outside
    from combinators.claims.provenance import holds_code

    box = _PULLS, id(kernel), tuple(sizes.items()), is_state
    if box not in shaped.known:
        types = [Struct(block.shape, block.dtype) for block in blocks]
        shaped.known[box] = (
            kernel,
            holds_code(kernel)[0] and outside(partial(_pulls, shaped, kernel, types, sizes, is_state)),
        )
    found = shaped.known[box][1]
    part = ", ".join(f"{name}={sizes[name]}" for name, size in shaped.sizes.items() if sizes[name] != size)
    if found == UNTOLD:
        return f"its cells choose together which way it takes (a loop); whatever was tried, {part} chose as all did"
    # What it does with cells says nothing: it may choose by how many there are.
    return f"parts of {part} pull back other numbers than all of it" if found else ""


def _pulls(
    shaped: Shaped, kernel: Callable[..., Any], types: Sequence[Struct], sizes: Mapping[str, int], is_state: bool
) -> bool | str:
    # Here, not at the top: see above.
    from combinators.claims.pulled import pulls_otherwise

    boxed = _asked(shaped, kernel, types, is_state)
    whole = boxed.at(dict(shaped.sizes))
    return not (whole is not None and _takes_cells(shaped, kernel, whole)) and pulls_otherwise(boxed, sizes)


def _takes_cells(shaped: Shaped, kernel: Callable[..., Any], program: Any) -> bool:
    """Whether all code of others in a kernel takes one cell at a time: what is made of it is ours, held by its laws."""
    # Here, not at the top: see above.
    from combinators.claims.provenance import takes_cells
    from combinators.declared.runnable import is_known
    from combinators.merging.foreign import merges_inside

    # What an operation merges by is asked where it is cut; nobody knows of what merges inside of a map.
    if shaped.operation.monoid is None and merges_inside(kernel):
        return False
    return takes_cells(kernel) and is_known(program)


def _asked(shaped: Shaped, kernel: Callable[..., Any], types: Sequence[Struct], is_state: bool) -> Boxed:
    """A kernel as it is asked: on wide floats in the place of narrow ones, if it takes them."""
    # Here, not at the top: see above.
    from combinators.declared.compared import wide

    boxed = _boxed(shaped, kernel, [Struct(each.shape, wide(each)) for each in types], is_state)
    return boxed if boxed.at(dict(shaped.sizes)) is not None else _boxed(shaped, kernel, types, is_state)


def _boxed(shaped: Shaped, kernel: Callable[..., Any], types: Sequence[Struct], is_state: bool) -> Boxed:
    # Here, not at the top: see above.
    from combinators.claims.cut import Boxed
    from combinators.claims.provenance import takes_blocks

    pairs = zip(shaped.signature.operands, types, strict=True)
    arrays = [each for operand, each in pairs if operand.coordinate is None]
    programs: dict[tuple[int, ...], Any] = {}

    def at(sizes: dict[str, int]) -> Any:
        place = tuple(sizes.values())
        if place not in programs:
            programs[place] = program_at(kernel, block_structs(shaped.signature, arrays, sizes))
        return programs[place]

    operation, carrier = shaped.operation, shaped.carrier
    if not is_state:
        return Boxed(shaped.signature, shaped.sizes, shaped.result_axes, None, list, at)
    if operation.over is not None:  # what a kernel gives for each step
        return Boxed(shaped.signature, shaped.sizes, carrier, None, list, at)
    assert operation.monoid is not None
    merge = partial(combine_blocks, operation.monoid, shaped.state_tree, carrier)
    return Boxed(
        shaped.signature, shaped.sizes, shaped.result_axes, merge, partial(present, shaped), at, takes_blocks(kernel)
    )


def settles(shaped: Shaped, types: Sequence[Struct], sizes: Mapping[str, int]) -> bool:
    """Whether the program of a map says that boxes of some sizes come to the whole, in slopes too: none need be run.

    Args:
      shaped: the map.
      types: of its array operands.
      sizes: of a box of its index space.
    """
    box = "settles", tuple(sizes.items())
    if box not in shaped.known:
        shaped.known[box] = _settles(shaped, types, dict(sizes))
    return shaped.known[box]


def _settles(shaped: Shaped, types: Sequence[Struct], sizes: dict[str, int]) -> bool:
    # Here, not at the top: see above.
    from combinators.declared.check import Claim
    from combinators.declared.programs import alike_but_sizes
    from combinators.declared.settled import is_settled

    operation = shaped.operation
    blocks = (block_structs(shaped.signature, types, each) for each in (dict(shaped.sizes), sizes))
    whole, box = (program_at(operation.kernel, each) for each in blocks)
    if whole is None or box is None or whole.effects or is_written(shaped, types):
        return False
    claim = Claim(operation.name, shaped.signature, shaped.sizes, operation.over)
    names = [[axis.name for axis in axes] for axes in shaped.result_axes]
    cut = [dim for dim, size in shaped.sizes.items() if sizes[dim] != size]
    return is_settled(claim, whole, names, cut, None) and alike_but_sizes(whole, box)


def not_of_any_size(shaped: Shaped, sizes: Mapping[str, int], *lines: str, remedy: str = _TAKE_SIZES) -> KernelError:
    """The error of a kernel that a part of its index space is too small for."""
    return KernelError(
        message(
            f"the kernel of `{shaped.operation.name}` is not right for a box of any size.",
            f"signature {shaped.signature}",
            f"box {', '.join(f'{name}={size}' for name, size in sizes.items())}",
            *lines,
            remedy=remedy,
        )
    )


def _box_shapes(shaped: Shaped, sizes: Mapping[str, int], *, is_state: bool) -> list[tuple[int, ...]]:
    if is_state:
        return [
            tuple(sizes.get(name, size) for name, size in zip(axes, leaf.shape, strict=True))
            for axes, leaf in zip(shaped.carrier, shaped.state, strict=True)
        ]
    return [
        tuple(
            axis_size(axis, sizes) if all(term.name in sizes for term in axis.terms) else size
            for axis, size in zip(axes, leaf.shape, strict=True)
        )
        for axes, leaf in zip(shaped.result_axes, shaped.results, strict=True)
    ]
