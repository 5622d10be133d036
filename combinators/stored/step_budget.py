"""A bound on what tracing does for a file: calls are counted, and too many end it with an error.

Types are checked by tracing kernels, which computes nothing. But a file chooses how kernels are put together, and ten
that each call the next one 40 times trace for ever. No bound on single numbers rules that out; a bound on all steps
does.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Generator
from types import FrameType
from typing import Any

from combinators.errors import FormatError, message

BASE = 3_000_000
"""Calls that any file may cost; the kernels that we ship cost 20,000 each on average."""
PER_CHARACTER = 30
"""Calls more for every character of the file; ours cost 20 at most."""

# Ordinary functions, which raise errors to callers that expect them. An error raised anywhere else, such as where a
# context of JAX's is left, could leave JAX in the middle of a trace.
_STOPPABLE = ("combinators.", "tapestry_jax.", "jax._src.numpy.", "jax._src.lax.", "jax._src.nn.", "opt_einsum.")
_MOST_ENTRIES = 2**16
"""Of an array that is taken apart entry by entry, as happens where one is passed for a shape."""


class _Stop(BaseException):
    """Not an `Exception`, so that no kernel and no caller on the way takes it for its own."""


@contextlib.contextmanager
def bounded_steps(size: int) -> Generator[None]:
    """Bound the Python calls of the block by `BASE + PER_CHARACTER * size`.

    Where a profiler watches calls already, nothing is counted.

    Args:
      size: characters of the file.

    Raises:
      FormatError: where there are more; and where the block iterates over a large array, for which Python makes room.
    """
    if sys.getprofile() is not None:
        yield
        return
    most = left = BASE + PER_CHARACTER * size

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal left
        del argument
        if event == "call":
            left -= 1
            name = frame.f_code.co_name
            if left < 0 and _is_stoppable(frame, name):
                raise _Stop(f"checking the types of its kernels takes more than {most} steps")
            if name == "__iter__" and _entries(frame) > _MOST_ENTRIES:
                raise _Stop(f"a kernel takes an array of {_entries(frame)} entries apart, one by one")

    sys.setprofile(count)
    try:
        yield
    except _Stop as stop:
        raise FormatError(
            message(
                "the file asks for more work than its length explains.",
                str(stop),
                remedy="Restore the file from what `to_json` wrote.",
            )
        ) from None
    finally:
        sys.setprofile(None)


def _is_stoppable(frame: FrameType, name: str) -> bool:
    # A generator that nobody asks any more is resumed to be closed, and Python ignores what is raised there.
    ordinary = not frame.f_code.co_flags & inspect.CO_GENERATOR and (name == "__call__" or not name.startswith("__"))
    return ordinary and str(frame.f_globals.get("__name__", "")).startswith(_STOPPABLE)


def _entries(frame: FrameType) -> int:
    """The length of the array whose method this is; 0 for the methods of anything else."""
    shape = getattr(frame.f_locals.get("self"), "shape", None)
    return shape[0] if isinstance(shape, tuple) and shape and type(shape[0]) is int else 0
