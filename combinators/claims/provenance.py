"""Whose code a callable holds: what is not of this library is asked for its numbers, whoever wrote it."""

from __future__ import annotations

import dataclasses
import dis
from collections.abc import Sequence
from functools import partial
from types import CodeType, FunctionType
from typing import Any, cast

import jax.numpy as jnp
import numpy as np

from combinators.kernels.reachable import holds_own_code, is_library, reached

# What code learns by how many cells an array has: by name, or by taking them one after the other.
_NAMED = "shape size len nbytes aval length_hint enumerate zip list tuple map iter sorted reversed filter reduce sum"
_TAKEN = "GET_ITER UNPACK_SEQUENCE UNPACK_EX LIST_EXTEND CALL_FUNCTION_EX"
_NAMES, _STEPS = frozenset(_NAMED.split()), frozenset(_TAKEN.split())
# The parts of aggregators that are written for a cell.
_OF_CELLS = frozenset(("lift", "monoid", "present", "reference"))
# In a kernel of ours, which says to which cells they are applied.
_UFUNCS = (jnp.ufunc, np.ufunc)


def holds_code(kernel: Any) -> tuple[bool, bool]:
    """Whether a kernel holds code that is not of this library, and whether that may learn how many cells an array has.

    What a kernel of this library does with its cells its laws hold; what JAX's own functions do (`jnp.gradient`,
    `jnp.var`) is up to them, whoever chose them.
    """
    if isinstance(kernel, FunctionType) and is_ours(kernel.__globals__.get("__name__")) and not kernel.__closure__:
        return False, False
    if not holds_own_code(kernel):
        foreign = _runs_others(kernel)
        return foreign, foreign
    read = (each.value for each in reached(kernel, "kernel").reads)
    functions = {id(value): value for value in read if isinstance(value, FunctionType)}
    own = [each.__code__ for each in functions.values() if not is_library(each.__globals__.get("__name__"))]
    if not own:  # in what nobody here can look into, if it is not of this library
        foreign = _runs_others(kernel)
        return foreign, foreign
    return True, any(map(_counts, own))


def is_ours(module: object) -> bool:
    """Whether a module of this name belongs to this library."""
    return isinstance(module, str) and module.partition(".")[0] in ("combinators", "tapestry_jax")


def _runs_others(kernel: Any) -> bool:
    """Whether a callable, or what it is made of, is a function of another library that takes blocks.

    What an aggregator lifts and presents it is given cell by cell, which says by itself what it does to a block.
    """
    while isinstance(kernel, partial):
        kernel = kernel.func
    if isinstance(kernel, (tuple, list)):
        return any(map(_runs_others, cast("Sequence[Any]", kernel)))
    if isinstance(kernel, type):
        return False
    if dataclasses.is_dataclass(kernel) and is_ours(type(kernel).__module__):
        parts = [getattr(kernel, field.name) for field in dataclasses.fields(kernel) if field.name not in _OF_CELLS]
        return any(not isinstance(part, _UFUNCS) and _runs_others(part) for part in parts)
    return callable(kernel) and not any(map(is_ours, (type(kernel).__module__, getattr(kernel, "__module__", None))))


def _counts(code: CodeType) -> bool:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return (
        not _NAMES.isdisjoint(code.co_names)
        or any(step.opname in _STEPS for step in dis.get_instructions(code))
        or any(map(_counts, inner))
    )
