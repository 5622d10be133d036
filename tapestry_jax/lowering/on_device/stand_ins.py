"""Whether the kernels in `dense=` do what the operation's own does: both are run once on a few numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

from combinators.claims.cut import plain
from combinators.claims.outside import outside
from combinators.claims.provenance import is_ours
from combinators.claims.standing import gives_otherwise
from combinators.declared.compared import rounds, wide
from combinators.declared.runnable import is_large
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
        for types, sizes in itertools.product(kinds, _sizes(shaped, entry, box)):
            structs = block_structs(shaped.signature, types, sizes)
            if entry.why_not(shaped.operation, structs, ()):
                continue
            own = program_at(_leaves(shaped, shaped.operation.kernel, "state"), structs)
            other = program_at(_leaves(shaped, entry.kernel, entry.gives), structs)
            if own is None or other is None or _types(own) != _types(other):
                continue  # refused by its shapes and dtypes, where it runs
            if types != given and (rounds(own) or rounds(other)):
                continue
            if not is_large(own) and not is_large(other):
                return gives_otherwise(shaped.signature, sizes, own, other)
        return False

    return outside(ask)


def _types(program: Any) -> list[Any]:
    return [(aval.shape, aval.dtype) for aval in program.out_avals]


def _sizes(shaped: Shaped, entry: Dense, box: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Sizes at which a kernel may stand in: few cells along what it does not need whole, or all of them."""
    whole = entry.needs_whole(shaped.operation)
    small = plain(shaped.signature)
    yield {dim: min(size, _FEW) if dim in small - whole else size for dim, size in shaped.sizes.items()}
    yield {dim: shaped.sizes[dim] if dim in whole else size for dim, size in box.items()}
    yield {dim: min(size, _FEW) if dim in small else size for dim, size in shaped.sizes.items()}


def _leaves(shaped: Shaped, kernel: Callable[..., Any], gives: str) -> Callable[..., list[Any]]:
    is_map = shaped.operation.kind == "map"

    def run(*blocks: Any) -> list[Any]:
        leaves = jax.tree.leaves(kernel(*blocks))
        return present(shaped, leaves) if gives == "state" and not is_map else leaves

    return run
