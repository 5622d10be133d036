"""Settings of JAX that decide which numbers a program gives.

A worker computes under those of the driver, and what a kernel computes is told under those that it was traced under.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar, cast

import jax

P = ParamSpec("P")
R = TypeVar("R")
_NAMES = (
    "enable_x64",
    "default_matmul_precision",
    "default_prng_impl",
    "numpy_dtype_promotion",
    "numpy_rank_promotion",
    "threefry_partitionable",
)

_ATTRIBUTES = tuple(f"jax_{name}" for name in _NAMES)


def settings() -> dict[str, Any]:
    """Those of this thread, by name."""
    return {name: getattr(jax.config, f"jax_{name}") for name in _NAMES}


@contextmanager
def under(given: Mapping[str, Any]) -> Generator[None]:
    """Compute under some settings; those of other threads stay."""
    with ExitStack() as stack:
        for name in _NAMES:
            stack.enter_context(getattr(jax, name)(given[name]))
        yield


class Remembered(Generic[P, R]):
    """A function whose answers are kept, each for the settings under which it was found; see `remembered`."""

    def __init__(self, function: Callable[P, R], maxsize: int) -> None:
        @lru_cache(maxsize)
        def known(_chosen: Hashable, *args: Any, **kwargs: Any) -> R:
            return cast("Callable[..., R]", function)(*args, **kwargs)

        self._known, self.cache_info, self.cache_clear = known, known.cache_info, known.cache_clear
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The answer, found now or before."""
        return self._known(chosen(), *args, **kwargs)


def remembered(maxsize: int) -> Callable[[Callable[P, R]], Remembered[P, R]]:
    """`functools.lru_cache` for what is found by tracing, which JAX does differently under other settings.

    Of a kernel that was traced without doubles nothing is known where there are some.

    Args:
      maxsize: how many answers are kept.
    """
    return lambda function: Remembered(function, maxsize)


def chosen() -> Hashable:
    """The settings of this thread, as a key."""
    return tuple(getattr(jax.config, name) for name in _ATTRIBUTES)
