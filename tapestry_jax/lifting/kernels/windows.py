"""Windows on blocks: what lies outside is in the block already, so nothing is padded."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from combinators.frozen import dataclass
from tapestry_jax.lifting.kernels.primitives import Params, run


@dataclass(frozen=True)
class Convolution:
    """`lax.conv_general_dilated`; its padding is that of axes that are whole.

    Attributes:
      params: of the primitive.
    """

    params: Params

    def __call__(self, image: Any, filters: Any, *, preferred_element_type: Any = None) -> Any:
        """The sums of products over a block."""
        params = dict(self.params)
        if preferred_element_type is not None:
            params["preferred_element_type"] = jnp.dtype(preferred_element_type)
        return run("conv_general_dilated", tuple(sorted(params.items())), (image, filters))[0]
