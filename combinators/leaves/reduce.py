"""Reduce: dimensions that only operands carry are folded with a monoid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from combinators.arguments import read_name
from combinators.errors import SignatureError, message
from combinators.index_space.signature import Signature, read_signature
from combinators.leaves.leaf import Leaf
from combinators.leaves.options import (
    kernel_name,
    read_boundary,
    read_kernels,
    read_pad,
    read_present,
    read_sizes,
)
from combinators.merging.monoid import Monoid
from combinators.operations.operation import Operation
from combinators.operations.rules import check_conditions, check_monoid


class Reduce(Leaf):
    """A block kernel whose partial results are merged by a monoid.

    `kernel(B1 + B2) = kernel(B1) (+) kernel(B2)` along every dimension that only operands carry, `(+)` the monoid.

    Args:
      kernel: operand blocks to a state block, right for a box of any size.
      signature: `operands -> results`; what stands only on the left is folded.
      monoid: merges two states; written for one cell.
      carrier: the signature of the state, such as `"b h q, b h q, b h q e"`, where it differs from the result's. What
        all leaves share is mapped; a cell's own axes carry names that no other leaf has. The dimensions of the result
        stand in it. (The dtype of states is told by `accumulate=` of `tp.plan`.)
      present: state of one cell to result of one cell.
      sizes: sizes of dimensions that no operand's shape tells.
      boundary: what windows read outside a tensor.
      pad: for each operand a value that is neutral in the fold, or None; spares a case distinction for uneven sizes.
        Where a plan fills blocks with it, the kernel is run on a few numbers, and one that it changes is refused.
      dense: kernels that return the presented result at once, for where no fold dimension is cut, or `tp.Dense` kernels
        with conditions; the first that may run does.
      name: for paths and errors; the kernel's by default.

    Raises:
      KernelError: when a kernel closes over arrays.
      SignatureError: when the signature cannot be read, a fold has no monoid, or `carrier` leaves out a dimension of
        the result.

    Laws: fold_homomorphism; those of the monoid.

    Example:
      >>> import jax.numpy as jnp
      >>> from combinators import monoids
      >>> matmul = Reduce(jnp.matmul, "i k, k n -> i n", monoids.Sum)
      >>> matmul(jnp.ones((2, 3)), jnp.ones((3, 2))).tolist()
      [[3.0, 3.0], [3.0, 3.0]]
      >>> Reduce(lambda x: x.max(0), "k n -> n", monoids.Max)(jnp.array([[1, 5], [4, 2]])).tolist()
      [4, 5]
    """

    def __init__(
        self,
        kernel: Callable[..., Any],
        signature: str | Signature,
        monoid: Monoid | None = None,
        *,
        carrier: str | None = None,
        present: Callable[..., Any] | None = None,
        sizes: Mapping[str, int] | None = None,
        boundary: str | Sequence[str] = "valid",
        pad: Sequence[float | int | None] | None = None,
        dense: Any = None,
        name: str | None = None,
    ) -> None:
        called = kernel_name(kernel, name)
        where = f"tp.Reduce({called})"
        listed = read_kernels(kernel, dense, where)
        parsed = read_signature(signature)
        check_monoid(monoid, parsed, where)
        check_conditions(listed, parsed, monoid, where)
        operation = Operation(
            parsed,
            kernel,
            monoid,
            read_carrier(carrier, where),
            read_present(present, where),
            sizes=read_sizes(sizes, where),
            boundary=read_boundary(boundary, where),
            pad=read_pad(pad, parsed, where),
            dense=listed,
            name=called,
        )
        super().__init__(operation)


def read_carrier(carrier: str | None, where: str) -> tuple[tuple[str, ...], ...] | None:
    """The axes of the state's leaves from a text such as `"b h q, b h q e"`.

    Raises:
      SignatureError: when an axis is no plain name.
    """
    if carrier is None:
        return None
    read_name(carrier, f"carrier= of {where}", SignatureError)
    leaves = tuple(tuple(name.strip("[]") for name in leaf.split()) for leaf in carrier.split(","))
    for leaf in leaves:
        for name in leaf:
            if name != "..." and not name.isidentifier():
                raise SignatureError(
                    message(
                        f"the carrier of {where} has the axis {name!r}",
                        f"got {carrier!r}",
                        remedy="Name plain dimensions, one list for each leaf of the state, separated by commas.",
                    )
                )
    return leaves
