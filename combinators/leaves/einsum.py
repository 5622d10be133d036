"""Einsum: the kernel comes from the signature."""

from __future__ import annotations

import string
from functools import lru_cache
from typing import Any, ClassVar

import jax.numpy as jnp

from combinators.arguments import read_optional_name
from combinators.errors import SignatureError, message
from combinators.frozen import dataclass
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature, read_signature
from combinators.leaves.leaf import Leaf
from combinators.merging.monoid import Monoid
from combinators.monoids import Sum
from combinators.operations.operation import Operation


@dataclass(frozen=True)
class Einsum:
    """`jnp.einsum` with fixed subscripts.

    Attributes:
      subscripts: of the operands and the result.
      neutral: what changes no sum where every operand holds it.
    """

    subscripts: str
    neutral: ClassVar[int] = 0
    merged_by: ClassVar[tuple[Monoid, ...]] = (Sum,)

    def __call__(self, *blocks: Any, preferred_element_type: Any = None) -> Any:
        """The sum of products over a block."""
        return jnp.einsum(self.subscripts, *blocks, preferred_element_type=preferred_element_type)


def einsum(signature: str | Signature, *, name: str | None = None) -> Leaf:
    """Sum of products: `tp.einsum("b s k, k h d -> b s h d")`.

    Args:
      signature: bare dimensions, whole ones, and `...`; what stands only on the left is summed.
      name: for paths and errors.

    Returns:
      A `Reduce` with the monoid Sum, or a `Map` where nothing is summed.

    Raises:
      SignatureError: for windows, compositions, coordinates or several results.

    Example:
      >>> import jax.numpy as jnp
      >>> einsum("b s k, k h d -> b s h d")(jnp.ones((1, 2, 3)), jnp.ones((3, 4, 5))).shape
      (1, 2, 4, 5)
    """
    parsed = read_signature(signature)
    return Leaf(_operation(parsed, parsed.text, read_optional_name(name, "name= of tp.einsum") or "einsum"))


# The layers of a model repeat the same few: what is known of an operation is not found again for its equal. Signatures
# are equal where only their texts differ, of which errors speak.
@lru_cache(maxsize=1024)
def _operation(parsed: Signature, text: str, name: str) -> Operation:
    letters = _letters(parsed)
    operands = ",".join(_subscripts(operand, letters, parsed) for operand in parsed.operands)
    if len(parsed.results) != 1 or not parsed.operands:
        raise _refused(parsed, "it needs operands and one result")
    kernel = Einsum(f"{operands}->{_subscripts(parsed.results[0], letters, parsed)}")
    if parsed.generated_dims:
        raise _refused(parsed, f"`{parsed.generated_dims[0]}` stands only on the right")
    folds = bool(parsed.fold_dims)
    # Zero annihilates a product, so padding needs no case distinction.
    pad = tuple(0 for _ in parsed.operands) if folds else None
    return Operation(parsed, kernel, Sum if folds else None, pad=pad, name=name)


def _letters(signature: Signature) -> dict[str, str]:
    if len(signature.dims) > len(string.ascii_letters):
        raise _refused(signature, f"it has more than {len(string.ascii_letters)} dimensions")
    return dict(zip(signature.dims, string.ascii_letters, strict=False))


def _subscripts(operand: Operand, letters: dict[str, str], signature: Signature) -> str:
    if operand.coordinate is not None:
        raise _refused(signature, f"`@{operand.coordinate}` is a coordinate")
    texts: list[str] = []
    for axis in operand.axes:
        name = axis.name or axis.whole_name
        if name is None:
            raise _refused(signature, f"the axis `{axis}` is not a bare dimension")
        texts.append(letters[name])
    return "".join(operand.around("...", texts))


def _refused(signature: Signature, why: str) -> SignatureError:
    return SignatureError(
        message(
            "tp.einsum cannot make a kernel for this signature",
            f"signature {signature}",
            why,
            remedy="Write the kernel: tp.Reduce(kernel, signature, monoid), or rearrange before.",
        )
    )
