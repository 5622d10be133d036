"""What JAX is set to where a program is called: XLA's partitioner asks for it elsewhere, where settings are others."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import jax

from combinators.frozen import dataclass


@dataclass(frozen=True)
class Settings:
    """The settings of JAX that values depend on.

    Attributes:
      doubles: whether there are dtypes of 64 bits.
      precision: of matrix products that do not say theirs.
      partitionable: whether random bits are drawn the same way on every mesh.
    """

    doubles: bool
    precision: str | None
    partitionable: bool

    @classmethod
    def here(cls) -> Settings:
        """Those of this thread now, `with` statements around included."""
        config: Any = jax.config
        return cls(config.jax_enable_x64, config.jax_default_matmul_precision, config.jax_threefry_partitionable)

    @contextmanager
    def entered(self) -> Generator[None]:
        """Trace under these settings."""
        with ExitStack() as stack:
            stack.enter_context(jax.enable_x64(self.doubles))
            stack.enter_context(jax.default_matmul_precision(self.precision))
            stack.enter_context(jax.threefry_partitionable(self.partitionable))
            yield
