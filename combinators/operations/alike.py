"""Whether the kernels in `dense=` of an operation that was read give what its own does, in number, shape and dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from combinators.errors import KernelError, TapestryError, first_line, message
from combinators.operations.dense import Dense, as_dense
from combinators.operations.kinds import knows_its_kernel, stands_for
from combinators.operations.results import Struct
from combinators.operations.shaped import Shaped, block_structs


def check_dense(shaped: Shaped, operands: Sequence[Struct]) -> None:
    """Ask the conditions of dense kernels, and trace those that may run.

    Kernels for a platform may refuse to be traced without it: their types are compared where they can be.

    Args:
      shaped: the operation.
      operands: types of its array operands.

    Raises:
      KernelError: for the first that gives something else, or raises.
    """
    blocks = block_structs(shaped.signature, operands, shaped.sizes)
    for entry in map(as_dense, shaped.operation.dense):
        if knows_its_kernel(entry) and not stands_for(entry, shaped.operation.kernel):
            raise _refused(shaped, "it was made for another kernel")
        try:
            found = None if entry.why_not(shaped.operation, blocks, ()) else _given(entry, blocks)
        except TapestryError:
            raise
        except Exception as error:
            raise _refused(shaped, first_line(error)) from error
        expected = [_told(leaf) for leaf in (shaped.state if entry.gives == "state" else shaped.results)]
        if found is not None and found != expected:
            raise _refused(shaped, f"expected {', '.join(expected)}", f"got {', '.join(found) or 'nothing'}")


def _given(entry: Dense, blocks: Sequence[Struct]) -> list[str] | None:
    """What a kernel gives; None for one of a platform that cannot be traced here."""
    try:
        # The lambda lets functions through that cannot be hashed.
        return [_told(leaf) for leaf in jax.tree.leaves(jax.eval_shape(lambda *given: entry.kernel(*given), *blocks))]
    except Exception:
        if entry.platforms is None:
            raise
        return None


def _told(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}"


def _refused(shaped: Shaped, *lines: str) -> KernelError:
    return KernelError(
        message(
            f"a kernel in dense= of `{shaped.operation.name}` does not do what the operation's own does",
            f"signature {shaped.signature}",
            *(line[:200] for line in lines),
            remedy="Write it for the same blocks, shapes and dtypes, or leave it out.",
        )
    )
