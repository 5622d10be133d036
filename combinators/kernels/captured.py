"""Arrays that a kernel captures, found where none can hide: among the constants of its jaxpr.

An array that hides inside a function is cut by no plan: a block is combined with all of it, or with its first rows. It
comes into a function by a closure, a global, an attribute, a container, a property, a cache, a helper; into the jaxpr
it comes as a constant. JAX stages what happens to its own arrays, so a constant of theirs was there before the kernel
ran. NumPy's arrays are computed on the way, so a constant of theirs may be made by the kernel, as in
`np.array([1., 2., 1.])`, which is fine, or from an array that it captures. What the function can reach decides, and for
what cannot be followed a second trace: what is one object in both was made in neither.
"""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata

from combinators.errors import KernelError, message
from combinators.kernels.jaxprs import is_literal, programs_inside
from combinators.kernels.kernel import short_name
from combinators.kernels.reachable import describe_array, holds_own_code, is_library, reachable_arrays

_CALLBACKS = frozenset({"pure_callback", "io_callback", "debug_callback"})
_RULES = frozenset({"custom_jvp_call", "custom_vjp_call", "custom_jvp_call_jaxpr", "custom_vjp_call_jaxpr"})
_FRESH = itertools.count()


def result_types(function: Callable[..., Any], types: Sequence[Any], where: str, *, of: object = None) -> Any:
    """What `jax.eval_shape` gives, from a trace whose constants are looked at.

    Args:
      function: takes arrays, and pytrees of arrays.
      types: of its operands.
      where: what it is, as the error calls it: "the kernel of `gelu`".
      of: the user's function, or several, where `function` wraps it; what it holds is named in the error.

    Returns:
      The types of its result, a pytree.

    Raises:
      KernelError: when the function captures arrays; each is named.
    """
    return program_and_types(function, types, where, of=of)[1]


def program_and_types(
    function: Callable[..., Any], types: Sequence[Any], where: str, *, of: object = None
) -> tuple[Any, Any]:
    """As `result_types`, behind the closed jaxpr that was traced."""
    closed, out = _trace(function, types)
    _look_at(closed, function, types, where, function if of is None else of)
    return closed, out


def program_at(function: Callable[..., Any], types: Sequence[Any]) -> Any:
    """The closed jaxpr on operands of these types; None where the function does not take them."""
    try:
        return _trace(function, types)[0]
    except Exception:  # noqa: BLE001 - a user's kernel may refuse other sizes in any way
        return None


def _look_at(closed: Any, function: Callable[..., Any], types: Sequence[Any], where: str, own: Any) -> None:
    """Look at the constants of a trace."""
    equations = list(_equations(closed.jaxpr))
    names = {equation.primitive.name for equation in equations}
    constants = list(_constants(closed, equations))
    if (constants or names & _CALLBACKS or names & _RULES) and holds_own_code(own):
        _check(function, types, own, constants, bool(names & _CALLBACKS), where)
        # A gradient is traced only where a rule could reach an array: JAX's own rules (relu) are everywhere.
        if names & _RULES and reachable_arrays(own, "rule"):
            _check_rules(function, types, own, where)


def check_captured(function: Callable[..., Any], types: Sequence[Any], where: str, *, of: object = None) -> None:
    """Refuse a function that captures arrays; whatever else it raises, it may raise where it runs.

    Args:
      function: takes arrays, and pytrees of arrays.
      types: of its operands.
      where: what it is, as the error calls it.
      of: the user's function, or several, where `function` wraps it.

    Raises:
      KernelError: when the function captures arrays; each is named.
    """
    own: Any = function if of is None else of
    if not holds_own_code(own):
        return
    try:
        closed, _ = _trace(function, types)
    except KernelError:
        raise
    except Exception:  # noqa: BLE001 - a kernel for another platform, a condition that does not hold here
        return
    _look_at(closed, function, types, where, own)


def _check(
    function: Callable[..., Any], types: Sequence[Any], own: Any, constants: Sequence[Any], calls: bool, where: str
) -> None:
    """Refuse constants that were not made by the function itself."""
    if not constants and not calls:
        return
    called = short_name(own) if callable(own) else "functions"
    found = reachable_arrays(own, called)
    exact = [each for each in found if any(_root(each.array) is _root(constant) for constant in constants)]
    lines, remedy = [str(each) for each in exact or found], "Pass it as an operand."
    if not lines:
        with set_xla_metadata(tapestry_trace=str(next(_FRESH))):  # part of the key of JAX's caches, and of nothing else
            again, _ = _trace(function, types)
        roots = [_root(constant) for constant in _constants(again, list(_equations(again.jaxpr)))]
        kept = [each for each in constants if any(_root(each) is root for root in roots) and not _is_of_library(each)]
        lines = [f"{describe_array(each)}, which is there before `{called}` is called" for each in kept]
        remedy = "Pass it as an operand, or make it anew in every call."
    if lines:
        raise KernelError(message(f"{where} captures arrays.", *dict.fromkeys(lines), remedy=remedy))


def _check_rules(function: Callable[..., Any], types: Sequence[Any], own: Any, where: str) -> None:
    """Look at the rules of custom derivatives, which a trace does not run, by taking the derivative."""
    leaves, tree = jax.tree.flatten(tuple(types))
    moving = [_is_inexact(leaf) for leaf in leaves]

    def pulled(*blocks: Any) -> Any:
        def run(*moved: Any) -> list[Any]:
            rest = iter(moved)
            full = [next(rest) if moves else block for moves, block in zip(moving, blocks, strict=True)]
            return [leaf for leaf in jax.tree.leaves(function(*jax.tree.unflatten(tree, full))) if _is_inexact(leaf)]

        out, pull = jax.vjp(run, *(block for moves, block in zip(moving, blocks, strict=True) if moves))
        return pull([jnp.ones_like(leaf) for leaf in out])

    try:
        closed, _ = _trace(pulled, leaves)
    except Exception:  # noqa: BLE001 - not every kernel has a gradient
        return
    _check(pulled, leaves, own, list(_constants(closed, list(_equations(closed.jaxpr)))), False, where)


def _trace(function: Callable[..., Any], types: Sequence[Any]) -> tuple[Any, Any]:
    # The lambda lets functions through that cannot be hashed, and keeps JAX from answering from a cache.
    return jax.make_jaxpr(lambda *operands: function(*operands), return_shape=True)(*types)


def _equations(jaxpr: Any) -> Iterator[Any]:
    """All equations, those inside of calls, loops and conditions too."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in programs_inside(equation):
            yield from _equations(getattr(inner, "jaxpr", inner))


def _constants(closed: Any, equations: Sequence[Any]) -> Iterator[Any]:
    """The arrays that a jaxpr holds: JAX's of any rank; NumPy's with axes, since a number may come as one without."""
    held: list[Any] = list(closed.consts)
    for equation in equations:
        held.extend(variable.val for variable in equation.invars if is_literal(variable))
        for inner in programs_inside(equation):
            held.extend(getattr(inner, "consts", ()))
    yield from (each for each in held if isinstance(each, jax.Array) or np.ndim(each) > 0)


def _root(array: Any) -> Any:
    """The array itself: not JAX's wrapper around one of NumPy's, and not a view."""
    if isinstance(array, jax.Array):
        return array
    array = getattr(array, "val", array)
    while getattr(array, "base", None) is not None:
        array = array.base
    return array


def _is_of_library(array: Any) -> bool:
    """Whether a module of JAX or NumPy, or a cache of theirs, holds the array: a table of coefficients."""
    root = _root(array)
    if any(is_library(getattr(holder, "__module__", None)) for holder in gc.get_referrers(root) if callable(holder)):
        return True
    modules: list[Any] = [module for name, module in list(sys.modules.items()) if is_library(name)]
    return any(
        _root(item) is root
        for module in modules
        if isinstance(module, ModuleType)  # a module may put anything in its place
        for value in list(vars(module).values())
        for item in (cast("tuple[Any, ...]", value) if isinstance(value, (tuple, list)) else (value,))
        if isinstance(item, np.ndarray)
    )


def _is_inexact(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.inexact))
