"""How far training is, as a bar."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import jax

from tapestry_jax.nnx.training.extras import required


class Bar:
    """A bar of tqdm, or none.

    Args:
      shown: what tqdm made, or None.
    """

    def __init__(self, shown: Any) -> None:
        self._shown = shown

    def reach(self, step: int, found: Mapping[str, float]) -> None:
        """Show that a step was reached, and what the last ones found."""
        if self._shown is not None:
            self._shown.set_postfix_str(f"loss {found.get('loss', float('nan')):.4g}", refresh=False)
            self._shown.update(step - self._shown.n)


@contextmanager
def bar(wanted: bool, start: int, last: int | None) -> Generator[Bar]:
    """A bar for as long as training goes on; of several processes the first one shows it.

    Raises:
      TrainingError: where one is wanted, and tqdm is not installed.
    """
    if not wanted or jax.process_index() != 0:
        yield Bar(None)
        return
    tqdm = required("tqdm", "tqdm", "bars").tqdm
    with tqdm(total=last, initial=start, unit="step", mininterval=1.0) as shown:
        yield Bar(shown)
