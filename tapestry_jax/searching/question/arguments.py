"""The arguments of a search, read: what is none is told in the words of the library."""

from __future__ import annotations

import contextlib
import math
import re
from typing import Any

from combinators.arguments import is_real, is_whole, read_integer
from combinators.errors import PlanError, message, spelt
from tapestry_jax.machines.machine import Machine

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_MOST = 10**18
"""More bytes than that no device has."""
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?B|[KMG]iB)", re.IGNORECASE)


def read_memory(memory: Any, machine: Machine) -> int:
    """Bytes of a device: a number of them, or text with a unit; those of the machine for None.

    Raises:
      PlanError: for anything else, and for no bytes at all.
    """
    if memory is None:
        return int(machine.memory.value)
    found = _AMOUNT.fullmatch(memory.strip()) if isinstance(memory, str) else None
    amount: Any = float(found[1]) * _UNITS[found[2].upper()] if found is not None else memory
    # Of text, what is less than a byte is left out.
    if (found is not None or is_whole(amount)) and 1 <= amount <= _MOST:
        return int(amount)
    raise PlanError(
        message(
            "memory= of tp.search is no amount of memory",
            f"got {spelt(memory)}",
            remedy="Give bytes of one device, a positive whole number or text: 80_000_000_000, '80GB', '74.5GiB'.",
        )
    )


def read_method(method: Any, known: Any) -> str:
    """The name of a method.

    Raises:
      PlanError: for anything else.
    """
    if isinstance(method, str) and method in known:
        return method
    raise PlanError(
        message(
            "method= of tp.search names no method",
            f"got {spelt(method)}",
            f"known are {', '.join(known)}",
            remedy="Name one of these; auto chooses by how large the problem is.",
        )
    )


def read_limit(limit: Any) -> float | None:
    """Seconds, or None for no limit.

    Raises:
      PlanError: for anything else.
    """
    if limit is None:
        return None
    with contextlib.suppress(OverflowError):
        if is_real(limit) and 0 < float(limit) < math.inf:
            return float(limit)
    raise PlanError(
        message(
            "time_limit= of tp.search is no time",
            f"got {spelt(limit)}",
            remedy="Give seconds, a number above 0, or None for no limit.",
        )
    )


def read_points(points: Any) -> int:
    """How many plans at most.

    Raises:
      PlanError: for anything but a positive whole number.
    """
    number = read_integer(points, "points= of tp.pareto", PlanError)
    if number > 0:
        return number
    raise PlanError(
        message(
            "points= of tp.pareto asks for no plan",
            f"got {number}",
            remedy="Give how many plans there may be at most, 1 or more.",
        )
    )
