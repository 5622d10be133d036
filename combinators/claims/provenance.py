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
from jax.custom_batching import custom_vmap

from combinators.kernels.reachable import Reached, holds_own_code, is_library, reached

# What code learns by how many cells an array has: by name, or by taking them one after the other.
_NAMED = "shape size len nbytes aval length_hint enumerate zip list tuple map iter sorted reversed filter reduce sum"
_TAKEN = "GET_ITER UNPACK_SEQUENCE UNPACK_EX LIST_EXTEND CALL_FUNCTION_EX"
_NAMES, _STEPS = frozenset(_NAMED.split()), frozenset(_TAKEN.split())
# The parts of aggregators that are written for a cell; functions that are made of others name theirs (`of_cells`).
_OF_CELLS = frozenset(("lift", "monoid", "present", "reference"))
# By these a function that is mapped over cells learns of all of them.
_BATCHING = frozenset(("custom_vmap", "Primitive", "primitive_batchers", "pallas_call", "ffi_call", "pure_callback"))
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
    found = reached(kernel, "kernel")
    own = _own_code(found)
    if not own:  # in what nobody here can look into, if it is not of this library
        foreign = _runs_others(kernel)
        return foreign, foreign
    return True, any(map(_counts, own)) or _maps_itself(found)


def takes_cells(kernel: Any) -> bool:
    """Whether all code of others in a kernel is given one cell at a time, by `jax.vmap`, and nothing else of a block.

    Then it cannot learn how many cells there are, nor meet two of them.
    """
    found = reached(kernel, "kernel")
    return not takes_blocks(kernel) and found.is_whole and not _maps_itself(found)


def takes_blocks(kernel: Any) -> bool:
    """Whether something that is given a block of cells was written outside of JAX, NumPy and this library."""
    if isinstance(kernel, partial):
        return any(map(takes_blocks, (kernel.func, *kernel.args, *kernel.keywords.values())))
    if isinstance(kernel, (tuple, list)):
        return any(map(takes_blocks, cast("Sequence[Any]", kernel)))
    if dataclasses.is_dataclass(kernel) and not isinstance(kernel, type) and is_ours(type(kernel).__module__):
        cells = _OF_CELLS | frozenset(getattr(kernel, "of_cells", ()))
        names = [field.name for field in dataclasses.fields(kernel) if field.name not in cells]
        return any(takes_blocks(getattr(kernel, name)) for name in names)
    return holds_own_code(kernel) or _runs_others(kernel)


def _own_code(found: Reached) -> list[CodeType]:
    functions = {id(each.value): each.value for each in found.reads if isinstance(each.value, FunctionType)}
    return [each.__code__ for each in functions.values() if not is_library(each.__globals__.get("__name__"))]


def _maps_itself(found: Reached) -> bool:
    """Whether something says by itself what `jax.vmap` makes of it: it is given all cells at once, or their number."""
    # Not at the top: `jax.extend` loads Pallas, see `combinators.kernels.jaxprs`.
    from jax.extend.core import Primitive

    values = [each.value for each in found.reads]
    return (
        any(isinstance(each, (custom_vmap, Primitive)) for each in values)
        or any(isinstance(each, (type, FunctionType)) and each.__name__ in _BATCHING for each in values)
        or any(map(_names_batching, _own_code(found)))
    )


def _names_batching(code: CodeType) -> bool:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return not _BATCHING.isdisjoint(code.co_names) or any(map(_names_batching, inner))


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
