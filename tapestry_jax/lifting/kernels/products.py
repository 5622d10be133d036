"""Sums of products on blocks, with the float dtype that they are added up in."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import jax.numpy as jnp

from combinators.frozen import dataclass
from combinators.merging.monoid import Monoid
from combinators.monoids import Sum
from combinators.operations.outside import Widths, zeros_around
from tapestry_jax.lifting.kernels.primitives import Params, run


@dataclass(frozen=True)
class Products:
    """`lax.dot_general` or `lax.conv_general_dilated` with its own numbers of axes, which hold no sizes.

    Attributes:
      primitive: its name.
      params: its parameters; of a convolution the padding is that of axes that are whole, since what lies outside of a
        window is in the block already.
      neutral: what changes no sum where both operands hold it.
    """

    primitive: str
    params: Params
    neutral: ClassVar[int] = 0
    merged_by: ClassVar[tuple[Monoid, ...]] = (Sum,)

    @property
    def answers(self) -> tuple[str, ...]:
        """Zeros around an image are part of a convolution."""
        return ("zero", "valid") if self.primitive == "conv_general_dilated" else ()

    def __call__(
        self, left: Any, right: Any, *, preferred_element_type: Any = None, padding: Widths | None = None
    ) -> Any:
        """The sums of products over a block."""
        params = dict(self.params) | ({} if padding is None else {"padding": padding})
        if preferred_element_type is not None:
            params["preferred_element_type"] = jnp.dtype(preferred_element_type)
        return run(self.primitive, tuple(sorted(params.items())), (left, right))[0]

    def beyond(self, modes: tuple[str, ...], widths: Widths) -> Any:
        """The same of an image that its boundary does not extend."""
        params = dict(self.params)
        strides, image = params["window_strides"], params["dimension_numbers"].lhs_spec[2:]
        found = zeros_around(tuple(widths[axis] for axis in image), strides)
        if found is None:
            return None
        pairs = zip(params["padding"], found, strict=True)
        return partial(self, padding=tuple((a + b, c + d) for (a, c), (b, d) in pairs))
