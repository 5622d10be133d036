"""Whether the kernels in `dense=` do what the operation's own does: both are run once on a few numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

from combinators.claims.cut import plain
from combinators.claims.fewer import is_alike
from combinators.claims.outside import outside
from combinators.claims.provenance import is_ours
from combinators.claims.standing import gives_otherwise
from combinators.declared.compared import rounds, wide
from combinators.declared.runnable import is_large, takes_many
from combinators.errors import KernelError, message
from combinators.kernels.captured import program_at
from combinators.kernels.kernel import short_name
from combinators.operations.dense import Dense, as_dense, knows_its_kernel
from combinators.operations.execute import present
from combinators.operations.results import Struct
from combinators.operations.shaped import Shaped, block_structs

# Cells along a dimension that a kernel does not need whole.
_FEW = 2


def check_stand_ins(shaped: Shaped, blocks: Sequence[Any], sizes: Mapping[str, int]) -> None:
    """Refuse a kernel that is said to do what the operation's own does, and gives other numbers or slopes.

    A plan chooses between them, by what is cut and by platform, and so would choose the result. Those are asked that
    can be run here.

    Args:
      shaped: the operation with the kernels that somebody wrote.
      blocks: what they are given, or the types of that.
      sizes: of the box.

    Raises:
      KernelError: naming the kernel.
    """
    known = shaped.known
    for number, entry in enumerate(map(as_dense, shaped.operation.dense)):
        asked = "stands in", number
        if asked not in known:
            known[asked] = not _is_held(shaped, entry) and _differs(shaped, entry, blocks, sizes)
        if known[asked]:
            raise KernelError(
                message(
                    f"the kernel `{short_name(entry.kernel)}` in dense= of `{shaped.operation.name}` does not do what "
                    "the operation's own does",
                    f"signature {shaped.signature}",
                    "run on the same few numbers, they give others, or other slopes, and a plan chooses between them",
                    remedy="Mend the kernel, or leave it out of dense=.",
                )
            )


def _is_held(shaped: Shaped, entry: Dense) -> bool:
    """Whether laws hold a kernel: one that was held against its kernel where the operation was made, and our scans."""
    module = getattr(entry.kernel, "__module__", None) or type(entry.kernel).__module__
    return knows_its_kernel(entry) or (shaped.operation.over is not None and is_ours(module))


def _differs(shaped: Shaped, entry: Dense, blocks: Sequence[Any], box: Mapping[str, int]) -> bool:
    pairs = zip(shaped.signature.operands, blocks, strict=True)
    given = [Struct(block.shape, block.dtype) for operand, block in pairs if operand.coordinate is None]
    # Few bits tell little: both are asked on wide floats, if they take and keep them.
    kinds = [Struct(each.shape, wide(each)) for each in given], given

    def ask() -> bool:
        for types in kinds:
            found = list(_pairs(shaped, entry, types, box))
            # What is asked of wide floats is told of those alone, unless a kernel rounds by itself.
            if not found or (types != given and any(rounds(each) for _, *pair in found for each in pair)):
                continue
            return any(gives_otherwise(shaped.signature, sizes, own, other) for sizes, own, other in _needed(found))
        return False

    return outside(ask)


def _pairs(
    shaped: Shaped, entry: Dense, types: Sequence[Struct], box: Mapping[str, int]
) -> Iterator[tuple[dict[str, int], Any, Any]]:
    """At every size that is asked the programs of the operation's own kernel and of another, where both can be run."""
    found = False
    for sizes in _sizes(shaped, entry, box):
        if (pair := _pair(shaped, entry, types, sizes)) is not None:
            found = True
            yield sizes, *pair
    # Few cells along what it needs whole too, where it cannot be run otherwise.
    small = plain(shaped.signature)
    few = {dim: min(size, _FEW) if dim in small else size for dim, size in shaped.sizes.items()}
    if not found and (pair := _pair(shaped, entry, types, few)) is not None:
        yield few, *pair


def _pair(shaped: Shaped, entry: Dense, types: Sequence[Struct], sizes: dict[str, int]) -> tuple[Any, Any] | None:
    structs = block_structs(shaped.signature, types, sizes)
    if takes_many(structs):
        return None  # without tracing what would not be run
    if entry.why_not(shaped.operation, structs, ()):
        return None
    own = program_at(_leaves(shaped, shaped.operation.kernel, "state"), structs)
    other = program_at(_leaves(shaped, entry.kernel, entry.gives), structs)
    if own is None or other is None or _types(own) != _types(other):
        return None  # refused by its shapes and dtypes, where it runs
    return None if is_large(own) or is_large(other) else (own, other)


def _needed(found: Sequence[tuple[dict[str, int], Any, Any]]) -> Iterator[tuple[dict[str, int], Any, Any]]:
    """The first, of the fewest cells; others where one of their two programs differs from it by more than sizes."""
    few, *pair = found[0]
    yield found[0]
    for place, (sizes, *programs) in enumerate(found[1:], 1):
        cells, pairs = math.prod(sizes.values()), list(zip(programs, pair, strict=True))
        if sizes not in [each for each, *_ in found[:place]] and not all(
            is_alike(program, first, sizes, few, cells) for program, first in pairs
        ):
            yield sizes, *programs


def _types(program: Any) -> list[Any]:
    return [(aval.shape, aval.dtype) for aval in program.out_avals]


def _sizes(shaped: Shaped, entry: Dense, box: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Sizes at which a kernel may stand in: few cells along what it does not need whole, those of a box, and all."""
    whole = entry.needs_whole(shaped.operation)
    small = plain(shaped.signature)
    yield {dim: min(size, _FEW) if dim in small - whole else size for dim, size in shaped.sizes.items()}
    yield {dim: shaped.sizes[dim] if dim in whole else size for dim, size in box.items()}
    yield dict(shaped.sizes)


def _leaves(shaped: Shaped, kernel: Callable[..., Any], gives: str) -> Callable[..., list[Any]]:
    is_map = shaped.operation.kind == "map"

    def run(*blocks: Any) -> list[Any]:
        leaves = jax.tree.leaves(kernel(*blocks))
        return present(shaped, leaves) if gives == "state" and not is_map else leaves

    return run
