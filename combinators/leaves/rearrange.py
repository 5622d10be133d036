"""Rearrange: transposing, splitting, composing and repeating axes; the kernel comes from the signature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from combinators.arguments import read_optional_name
from combinators.arrows.arrow import Arrow
from combinators.arrows.faces import Face
from combinators.errors import SignatureError, message
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature, read_signature
from combinators.index_space.sizes import solve_sizes
from combinators.leaves.options import read_sizes
from combinators.operations.compositions import Rearrangement, groups, inner_dims
from combinators.operations.operation import Operation
from combinators.operations.shaped import check_count
from combinators.recording.current import trace_of


class Rearrange(Arrow[Any, Any]):
    """See `rearrange`."""

    def __init__(self, signature: Signature, sizes: Mapping[str, int], name: str) -> None:
        self._signature, self._sizes, self.name = signature, dict(sizes), name

    @property
    def arity(self) -> int:
        """One."""
        return 1

    def takes(self) -> list[Face]:
        """The operand of the signature."""
        return [Face.of(self._signature.operands[0], {})]

    def gives(self) -> list[Face]:
        """The result of the signature."""
        return [Face.of(self._signature.results[0], self._sizes)]

    def apply(self, *values: Any) -> Any:
        """Apply with the sizes that the operand tells."""
        recording = trace_of(values, self.name)
        check_count(self._signature, len(values), where=self.name)
        signature = self._signature.expand(
            self._signature.ellipsis_rank([value.ndim for value in values], where=self.name)
        )
        sizes = solve_sizes(signature, [v.shape for v in values], given=self._sizes, where=self.name)
        source, target = (groups(operand.axes) for operand in (signature.operands[0], signature.results[0]))
        inner = inner_dims((*source, *target))
        # What is repeated and may be cut: its coordinates say how many of it a block has.
        repeated = tuple(dim for dim in signature.generated_dims if dim not in inner)
        kernel = Rearrangement(source, target, tuple(sorted((dim, sizes[dim]) for dim in inner)), repeated)
        told = Signature(
            (*signature.operands, *(Operand(coordinate=dim) for dim in repeated)), signature.results, signature.text
        )
        return recording.apply(Operation(told, kernel, sizes=read_sizes(self._sizes), name=self.name), values)


def rearrange(signature: str | Signature, *, name: str = "rearrange", **sizes: int) -> Rearrange:
    """Rearrange axes as einops does: `tp.rearrange("b s (h d) -> b s h d", h=8)`.

    Args:
      signature: one operand, one result; `(h d)` is row-major. All dimensions of the operand are kept; one that stands
        only on the right repeats, as in `einops.repeat`, and needs its size.
      name: for paths and errors.
      sizes: of dimensions that the operand does not tell.

    Raises:
      SignatureError: when a dimension is dropped, or the signature has windows or coordinates.

    Example:
      >>> import jax.numpy as jnp
      >>> rearrange("(h d) -> d h", h=2)(jnp.arange(6)).tolist()
      [[0, 3], [1, 4], [2, 5]]
      >>> rearrange("w -> (w twice)", twice=2)(jnp.arange(3)).tolist()
      [0, 0, 1, 1, 2, 2]
    """
    parsed = read_signature(signature)
    affine = any(axis.is_window for operand in (*parsed.operands, *parsed.results) for axis in operand.axes)
    single = len(parsed.operands) == 1 and len(parsed.results) == 1 and parsed.operands[0].coordinate is None
    if not single or affine or parsed.fold_dims:
        raise SignatureError(
            message(
                "tp.rearrange moves the dimensions of one operand, and keeps all of them",
                f"signature {parsed}",
                remedy="Fold with tp.fold or tp.Reduce, read windows with tp.Map.",
            )
        )
    known = read_sizes(sizes, "tp.rearrange")
    return Rearrange(parsed, dict(known), read_optional_name(name, "name= of tp.rearrange") or "rearrange")
