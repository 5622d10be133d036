"""Running something while a program is traced: beside it, under the same settings."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from combinators.settings import settings, under

Answer = TypeVar("Answer")


def outside(ask: Callable[[], Answer]) -> Answer:
    """What a function gives outside of the `shard_map` that is traced here, in which nothing can be run.

    Args:
      ask: is called once, in another thread, under JAX's settings of this one.
    """
    chosen = settings()

    def asked() -> Answer:
        with under(chosen):
            return ask()

    with ThreadPoolExecutor(1) as beside:
        return beside.submit(asked).result()
