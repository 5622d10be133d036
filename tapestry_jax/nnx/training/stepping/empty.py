"""What a batch of no row gives: nothing was computed, and nothing counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapestry_jax.nnx.training.results import Results


def of_no_row(results: Results, *, more: tuple[str, ...] = ()) -> dict[str, Any]:
    """The metrics of a batch without rows: the mean of nothing is NaN, and a total and its count are zero.

    Args:
      results: of the loss, of which there are types alone.
      more: names of what a step tells beside them.
    """
    none, zero = np.float32(np.nan), np.float32(0)
    told = {name: (zero, zero) if isinstance(kind, tuple) else none for name, kind in results.metrics.items()}
    return {"loss": none, **told, **dict.fromkeys(more, none)}
