"""Whether the neutral values that an operation declares are neutral to its kernels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from combinators.claims import neutral
from combinators.claims.cut import Boxed
from combinators.claims.outside import outside
from combinators.errors import KernelError, message
from combinators.kernels.captured import program_at
from combinators.kernels.reachable import is_library
from combinators.merging.blocks import combine_blocks
from combinators.operations.dense import as_dense
from combinators.operations.execute import present
from combinators.operations.results import Struct
from combinators.operations.shaped import Shaped, block_structs


def neutral_in(
    shaped: Shaped, blocks: Sequence[Any], dims: Collection[str], sizes: Mapping[str, int], *, empty: bool
) -> bool:
    """Whether blocks may be filled with the neutral values that an operation declares: its kernels are run once.

    Args:
      shaped: a fold that declares them.
      blocks: what its kernel is given, or the types of that.
      dims: along which blocks are filled with them.
      sizes: of the box.
      empty: whether a box may hold nothing else.

    Returns:
      False where it is better to run a kernel on the cells that there are: a box may hold nothing else, of which no
      identity comes, or slopes are others beside such cells.

    Raises:
      KernelError: when a kernel, run on a few numbers, gives others with such cells behind them.
    """
    states = [entry.kernel for entry in map(as_dense, shaped.operation.dense) if entry.gives == "state"]
    if not states and _is_known(shaped):
        return True
    answers = [_answers(shaped, kernel, blocks, dims, sizes) for kernel in (shaped.operation.kernel, *states)]
    if any(each.changes for each in answers):
        raise _refused(shaped, dims)
    return not any(each.turns_slopes or (empty and each.gives_no_identity) for each in answers)


def _is_known(shaped: Shaped) -> bool:
    """Whether they are those of a kernel of this library, which says what is neutral to it."""
    kernel = shaped.operation.kernel
    neutral = getattr(kernel, "neutral", None) if is_library(type(kernel).__module__) else None
    return neutral is not None and all(value == neutral for value in shaped.operation.pad or ())


def _refused(shaped: Shaped, dims: Collection[str]) -> KernelError:
    declared = ", ".join(map(str, shaped.operation.pad or ()))
    named = ", ".join(f"`{dim}`" for dim in dims)
    return KernelError(
        message(
            f"the kernel of `{shaped.operation.name}` declares pad=({declared}), which is not neutral to it",
            f"signature {shaped.signature}",
            f"this plan fills blocks with such cells along {named}, and they change what it gives",
            remedy="Declare what changes nothing (0 for a sum, -inf for a maximum, 1 for a product), or no pad=.",
        )
    )


class _Answers(NamedTuple):
    changes: bool
    gives_no_identity: bool
    turns_slopes: bool


def _answers(
    shaped: Shaped, kernel: Any, blocks: Sequence[Any], dims: Collection[str], sizes: Mapping[str, int]
) -> _Answers:
    asked = "neutral", id(kernel), tuple(sizes.items()), tuple(dims)
    if asked not in shaped.known:
        # With the kernel, since what is made for a plan might be another one at the same place otherwise.
        shaped.known[asked] = kernel, _ask(shaped, kernel, blocks, dims, sizes)
    return cast("_Answers", shaped.known[asked][1])


def _ask(
    shaped: Shaped, kernel: Any, blocks: Sequence[Any], dims: Collection[str], sizes: Mapping[str, int]
) -> _Answers:
    operation = shaped.operation
    assert operation.monoid is not None
    assert operation.pad is not None
    operands = list(zip(shaped.signature.operands, blocks, strict=True))
    types = [Struct(block.shape, block.dtype) for operand, block in operands if operand.coordinate is None]
    declared = iter(operation.pad)
    values = [None if operand.coordinate is not None else next(declared) for operand, _ in operands]

    def at(box: dict[str, int]) -> Any:
        return program_at(kernel, block_structs(shaped.signature, types, box))

    merge = partial(combine_blocks, operation.monoid, shaped.state_tree, shaped.carrier)
    boxed = Boxed(shaped.signature, shaped.sizes, shaped.result_axes, merge, partial(present, shaped), at)

    def ask() -> _Answers:
        questions = neutral.changes, neutral.gives_no_identity, neutral.turns_slopes
        return _Answers(*(question(boxed, values, dims, sizes) for question in questions))

    return outside(ask)
