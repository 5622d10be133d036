"""Sums of products on blocks, with the float dtype that they are added up in."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from combinators.frozen import dataclass
from tapestry_jax.lifting.kernels.primitives import Params, run


@dataclass(frozen=True)
class Products:
    """`lax.dot_general` or `lax.conv_general_dilated` with its own numbers of axes, which hold no sizes.

    Attributes:
      primitive: its name.
      params: its parameters; of a convolution the padding is that of axes that are whole, since what lies outside of a
        window is in the block already.
    """

    primitive: str
    params: Params

    def __call__(self, left: Any, right: Any, *, preferred_element_type: Any = None) -> Any:
        """The sums of products over a block."""
        params = dict(self.params)
        if preferred_element_type is not None:
            params["preferred_element_type"] = jnp.dtype(preferred_element_type)
        return run(self.primitive, tuple(sorted(params.items())), (left, right))[0]
