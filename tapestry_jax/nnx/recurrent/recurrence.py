"""What all layers share whose state goes from position to position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from combinators.errors import GraphError, message
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.nnx.modules.module import Module


class Recurrence(Module):
    """A layer whose state goes from position to position of one call, and begins anew with the next call."""

    def cache_types(self, leading: Sequence[tuple[str, int]], length: int, dtype: Any) -> dict[str, TensorType]:
        """The variables of a cache: no such layer has one yet, and without one it would forget what came before.

        Raises:
          GraphError: always.
        """
        del leading, length, dtype
        told = "what it gives for a position depends on the state behind the ones before"
        remedy = "Run the whole sequence in one call."
        raise GraphError(message(f"{type(self).__name__} keeps no state between calls", told, remedy=remedy))
