"""Functions that were jitted for another job of the same program: the same again is not compiled, and nothing is left.

JAX keeps what it traces for every function that it is given, so that a new function for each of many jobs costs their
compilation, and memory that nobody gets back. Which options of JAX a program is compiled under is left to JAX: what is
shared is the function, and not what was compiled of it. A kernel may read what has changed since, an attribute or a
global: every job is traced, and takes a function of before where it has come to the same.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from typing import Any

from combinators.graphs.graph import Graph
from tapestry_jax.plan import Plan
from tapestry_jax.planning.scheduling.schedule import Schedule

Functions = dict[Any, tuple[str, Any]]
"""By the part of a stream that they run: what was traced, as a text, and the function."""
_MOST = 8
"""Shapes and plans of one program, those that were asked for last."""
_BY_PROGRAM: dict[int, tuple[weakref.ref[Any], OrderedDict[Any, Functions]]] = {}
_LOCK = threading.RLock()
"""Jobs may be made in several threads. Comparing schedules may free a program in the thread that holds it."""


def functions_of(program: Any, schedule: Schedule, mesh: Any) -> Functions:
    """What was made for this very program, planned alike, as long as somebody holds it.

    Args:
      program: what the stream was made of. Another one that looks the same may call other functions.
      schedule: of the job.
      mesh: with devices.
    """
    # A graph would be held by what is made of it.
    if program is None or isinstance(program, Graph | Plan):
        return {}
    key = schedule, schedule.platforms, mesh
    with _LOCK:
        try:
            known = _of(program)
        except TypeError:  # it takes no weak references
            return {}
        found = known.setdefault(key, {})
        known.move_to_end(key)
        while len(known) > _MOST:
            known.popitem(last=False)
    return found


def _of(program: Any) -> OrderedDict[Any, Functions]:
    number = id(program)

    def forget(reference: weakref.ref[Any]) -> None:
        if number in _BY_PROGRAM and _BY_PROGRAM[number][0] is reference:
            del _BY_PROGRAM[number]

    if number not in _BY_PROGRAM or _BY_PROGRAM[number][0]() is not program:
        _BY_PROGRAM[number] = weakref.ref(program, forget), OrderedDict()
    return _BY_PROGRAM[number][1]
