"""Derivatives that somebody wrote, and that are false of parts: to take them is refused where a plan makes such parts.

A plan that cuts rows adds up what each part gives for the weights. Where that was clipped, averaged or normalised by
the derivative itself, the sum is another number than what it gives of all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from combinators.declared.check import Claim
from combinators.declared.derivative import false_derivative
from combinators.errors import PlanError, message
from combinators.operations.boxes import derivative_problem
from combinators.operations.shaped import Shaped, block_structs
from tapestry_jax.lowering.time.once import refusing
from tapestry_jax.planning.geometry.layout import Cut


def true_of_parts(
    shaped: Shaped,
    cuts: Mapping[str, Cut],
    sizes: Mapping[str, int],
    path: str,
    arrays: Sequence[Any],
    blocks: list[Any],
    *,
    is_state: bool,
) -> list[Any]:
    """The blocks of an operation; to take its derivative is an error where it is known to be false under these cuts.

    Args:
      shaped: the operation, whose derivative somebody wrote.
      cuts: of its dimensions.
      sizes: of a device's part.
      path: of the operation.
      arrays: its operands.
      blocks: what it reads of them.
      is_state: whether parts give states, which are merged.
    """
    cut = sorted(dim for dim, cut in cuts.items() if cut.extent < shaped.sizes[dim])
    found = _false(shaped, arrays) if cut else {}
    dim = next((dim for dim in cut if dim in found), None)
    if dim is None:
        problem = cut and derivative_problem(shaped, shaped.operation.kernel, blocks, sizes, is_state=is_state)
        if not problem:
            return blocks
        dim = cut[0]
        found = {dim: problem}
    error = PlanError(
        message(
            f"the derivative of `{path}` cannot be taken under this plan: somebody wrote it, and it is false of parts",
            f"signature  {shaped.signature}",
            f"derivative {found[dim]}",
            f"a plan that cuts `{dim}` adds up what it makes of each part",
            remedy=f"Do that to the gradient where it has been taken, or write [{dim}] (it is not cut then).",
        )
    )
    return refusing(blocks, error)


def _false(shaped: Shaped, arrays: Sequence[Any]) -> Mapping[str, str]:
    dtypes = tuple(array.dtype for array in arrays)
    key = ("derivatives that are false of parts", dtypes)
    if key not in shaped.known:
        shaped.known[key] = _found(shaped, dtypes)
    return shaped.known[key]


def _found(shaped: Shaped, dtypes: Sequence[Any]) -> dict[str, str]:
    operation = shaped.operation
    combine = None if operation.monoid is None else operation.monoid.combine
    claim = Claim(operation.name, operation.signature, shaped.sizes, operation.over, combine)
    structs = [jax.ShapeDtypeStruct((), dtype) for dtype in dtypes]
    axes = [[axis.name for axis in each] for each in shaped.result_axes]
    try:
        return false_derivative(
            claim,
            operation.kernel,
            lambda sizes: [
                jax.ShapeDtypeStruct(kind.shape, kind.dtype)
                for kind in block_structs(operation.signature, structs, dict(sizes))
            ],
            axes if operation.monoid is None else shaped.carrier,
        )
    except Exception:  # noqa: BLE001 - its author's derivative fails, and says so where it is taken
        return {}
