"""A progress bar: turns done, bytes read a second, and the time that is left."""

from __future__ import annotations

from typing import Any

from combinators.errors import message
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.measured.metrics import Meter


class Bar:
    """A bar of tqdm over the turns of a run; a context that closes it.

    Args:
      turns: of all passes.
      meter: of the run.

    Raises:
      StreamError: where tqdm is not installed.
    """

    def __init__(self, turns: int, meter: Meter) -> None:
        try:
            # An optional package.
            from tqdm import tqdm  # pyright: ignore[reportMissingModuleSource]
        except ImportError as error:
            remedy = "Install it: pip install 'tapestry-jax[stream]', or leave progress= out."
            raise StreamError(message("a progress bar needs the package tqdm", remedy=remedy)) from error
        self._bar: Any = tqdm(total=turns, unit="turn")
        self._meter = meter
        meter.on_turn = self._turned

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: Any) -> None:
        self._meter.on_turn = None
        self._bar.close()

    def _turned(self) -> None:
        rate = self._meter.throughput("read")
        self._bar.set_postfix_str(f"{rate / 1e6:.0f} MB/s read", refresh=False)
        self._bar.update()
