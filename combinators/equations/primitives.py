"""JAX's primitives in NumPy: what one device computes, without a compiler.

Every function takes the type of its result, the operands, and the parameters of the equation but those of `NO_VALUE`:
it names all that it reads, so that none is ignored. Primitives without an entry, and what an entry does not say, which
gives `NotImplemented`, run in JAX, one by one, which compiles each of them once for every shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.equations.elementwise import ELEMENTWISE, Primitive
from combinators.equations.folds import FOLDS
from combinators.equations.movements import MOVEMENTS

NO_VALUE = frozenset(
    (
        *("accuracy", "indices_are_sorted", "unique_indices", "is_stable"),
        *("dtype", "new_dtype", "input_dtype", "index_dtype", "weak_type", "preferred_element_type"),
        *("shape", "new_sizes", "sharding", "out_sharding"),
    )
)
"""Parameters that no entry has to read: of the type of the result, of where it lies, and what is promised."""


def run_primitive(equation: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of one equation; checks that they have the shapes that JAX expects."""
    avals = [variable.aval for variable in equation.outvars]
    if PRIMITIVES.get(equation.primitive.name) is _same:
        # Also random keys, of which JAX says outside of `shard_map` that they do not vary.
        return list(operands)
    # Typed random keys are arrays of JAX alone.
    if equation.primitive.name not in PRIMITIVES or not all(isinstance(each, _NUMPY) for each in operands):
        return _in_jax(equation, operands)
    found = in_numpy(equation, avals[0], operands)
    if found is NotImplemented:
        return _in_jax(equation, operands)
    results = found if equation.primitive.multiple_results else [found]
    return [_checked(equation, result, aval) for result, aval in zip(results, avals, strict=True)]


def in_numpy(equation: Any, aval: Any, operands: Sequence[Any], **others: Any) -> Any:
    """What the entry of an equation gives, with `others` for some of its parameters.

    Raises:
      TypeError: for a parameter that the entry does not read.
    """
    read = {name: value for name, value in equation.params.items() if name not in NO_VALUE}
    return PRIMITIVES[equation.primitive.name](aval, *operands, **{**read, **others})


_NUMPY = np.ndarray, np.generic


def _in_jax(equation: Any, operands: Sequence[Any]) -> list[Any]:
    found = equation.primitive.bind(*map(_to_jax, operands), **equation.params)
    results = list(found) if equation.primitive.multiple_results else [found]
    return [_from_jax(result) for result in results]


def _checked(equation: Any, result: Any, aval: Any) -> Any:
    array = np.asarray(result)
    if array.dtype != aval.dtype:
        array = array.astype(aval.dtype)
    assert array.shape == aval.shape, f"{equation.primitive.name} gave {array.shape}, not {aval.shape}: {equation}"
    return array


def _to_jax(operand: Any) -> Any:
    return jnp.asarray(operand) if isinstance(operand, np.ndarray) else operand


def _from_jax(result: Any) -> Any:
    # Typed random keys have no NumPy form.
    return result if jnp.issubdtype(result.dtype, jax.dtypes.extended) else np.asarray(result)


def _same(aval: Any, operand: Any, **_: Any) -> Any:
    """Whatever the parameters say."""
    return operand


def _optimization_barrier(aval: Any, *operands: Any) -> Any:
    return list(operands)


def _empty(aval: Any, **_: Any) -> Any:
    """What nobody reads before it is written."""
    return np.zeros(aval.shape, aval.dtype) if isinstance(aval.dtype, np.dtype) else NotImplemented


def _later(aval: Any, *operands: Any, count: int) -> Any:
    del count
    return list(operands)


_PLACED = ("copy", "device_put", "stop_gradient", "name", "sharding_constraint", "reshard", "pvary")
"""What gives its operands, wherever they lie."""
PRIMITIVES: dict[str, Primitive] = {
    **ELEMENTWISE,
    **MOVEMENTS,
    **FOLDS,
    **dict.fromkeys(_PLACED, _same),
    "optimization_barrier": _optimization_barrier,
    "empty2": _empty,
    "later": _later,
}
