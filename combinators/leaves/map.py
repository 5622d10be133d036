"""Map: every dimension of the index space is carried by the result, or whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from combinators.arrows.faces import Face
from combinators.errors import SignatureError, message
from combinators.index_space.signature import Signature, read_signature
from combinators.kernels.elementwise import check_elementwise, exact_operands
from combinators.kernels.settled import settled
from combinators.leaves.leaf import Leaf
from combinators.leaves.options import kernel_name, read_boundary, read_kernels, read_pad, read_sizes
from combinators.operations.operation import Operation
from combinators.operations.rules import check_conditions, check_maps
from combinators.recording.arithmetic import elementwise
from combinators.recording.current import trace_of


class Map(Leaf):
    """A block kernel of which every cut dimension is carried by the result.

    `kernel(B1 + B2) = concat(kernel(B1), kernel(B2))` along every dimension that is not whole.

    Args:
      kernel: operand blocks to the result block (or a tuple of them), right for a box of any size.
      signature: `operands -> results`, see docs/design/conventions.md. Without one the kernel acts cell by cell,
        which is checked on its jaxpr; operands then align by name. It says which cells a kernel reads, and moves none:
        under `(7-t) -> t` a block comes in the order of its array, and the kernel turns it round (`x[::-1]`).
      sizes: sizes of dimensions that no operand's shape tells.
      boundary: what windows read outside a tensor: `valid`, `zero`, `periodic`, `reflect`, `edge`; one, or one per
        window axis.
      pad: for each operand a value that the kernel takes without harm where a block is padded; see `Reduce`.
      dense: kernels for where nothing is cut, or `tp.Dense` kernels with conditions; the first that may run does.
      name: for paths and errors; the kernel's by default.

    Raises:
      KernelError: when the kernel closes over arrays, or has no signature and mixes cells.
      SignatureError: when the signature cannot be read or folds a dimension.

    Laws: map slicing, footprint, constant marginal.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> x = jnp.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
      >>> Map(jnp.square)(x)[1].tolist()
      [9.0, 16.0, 25.0]
      >>> Map(jax.nn.softmax, "... [c] -> ... [c]")(x).sum(1).tolist()
      [1.0, 1.0]
      >>> Map(lambda x: x[:, 1:] - x[:, :-1], "r (c+[d]) -> r c", sizes={"d": 2})(x).tolist()
      [[1.0, 1.0], [1.0, 1.0]]
    """

    def __init__(
        self,
        kernel: Callable[..., Any],
        signature: str | Signature | None = None,
        *,
        sizes: Mapping[str, int] | None = None,
        boundary: str | Sequence[str] = "valid",
        pad: Sequence[float | int | None] | None = None,
        dense: Any = None,
        name: str | None = None,
    ) -> None:
        called = kernel_name(kernel, name)
        listed = read_kernels(kernel, dense, f"tp.Map({called})")
        self._elementwise = None
        if signature is None:
            options = {
                "sizes": sizes,
                "boundary": None if boundary == "valid" else boundary,
                "pad": pad,
                "dense": dense,
            }
            given = [option for option, value in options.items() if value is not None]
            if given:
                raise SignatureError(
                    message(
                        f"tp.Map({called}) has no signature that {', '.join(f'`{o}`' for o in given)} could refer to",
                        remedy="Give it a signature, or leave them out.",
                    )
                )
            check_elementwise(kernel, None, f"tp.Map({called})")
            self._elementwise, self.name = settled(kernel), called
            return
        parsed = read_signature(signature)
        check_maps(parsed, f"tp.Map({called})")
        check_conditions(listed, parsed, None, f"tp.Map({called})")
        operation = Operation(
            parsed,
            kernel,
            sizes=read_sizes(sizes, f"tp.Map({called})"),
            boundary=read_boundary(boundary, f"tp.Map({called})"),
            pad=read_pad(pad, parsed, f"tp.Map({called})"),
            dense=listed,
            name=called,
        )
        super().__init__(operation)

    @property
    def arity(self) -> int | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The operands of the signature, or the parameters of an elementwise kernel where it leaves no choice."""
        return exact_operands(self._elementwise) if self._elementwise is not None else super().arity

    def takes(self) -> Sequence[Face] | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The operands of the signature; open for an elementwise map."""
        return None if self._elementwise is not None else super().takes()

    def gives(self) -> Sequence[Face] | None:
        """The results of the signature; open for an elementwise map."""
        return None if self._elementwise is not None else super().gives()

    def apply(self, *values: Any) -> Any:
        """Apply the kernel."""
        if self._elementwise is not None:
            trace_of([value for value in values if hasattr(value, "trace")], self.name)
            return elementwise(self._elementwise, *values, name=self.name)
        return super().apply(*values)

    def __repr__(self) -> str:
        return f"Map({self.name})" if self._elementwise is not None else super().__repr__()
