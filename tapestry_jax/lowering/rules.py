"""Derivatives that users wrote and that JAX refuses over a mesh, told as what they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from combinators.errors import PlanError, message

_REFUSED = "Custom JVP rule must produce"
"""How JAX's refusal begins: of a tangent that is the same on all devices, where its result is not."""


@contextmanager
def rules_told() -> Iterator[None]:
    """Run what may take a derivative.

    Raises:
      PlanError: for a tangent of a kernel's `jax.custom_jvp` that does not depend on the device, as its result does.
    """
    try:
        yield
    except TypeError as error:
        if _REFUSED not in str(error):
            raise
        raise PlanError(
            message(
                "the derivative of a kernel's `jax.custom_jvp` gives a tangent that is the same on all devices",
                f"JAX says  {' '.join(str(error).split())}",
                remedy="Make a tangent of zeros by jnp.zeros_like of the tangent that the rule is given, "
                "which lies as that one does; jnp.zeros(shape) lies on no mesh.",
            )
        ) from error
