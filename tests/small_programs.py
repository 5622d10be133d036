"""What JAX does outside of any `jit` is done by NumPy in tests, where it gives the same bits.

Outside of `jit` JAX compiles a program for every operation and every shape, 20 ms each: of the programs that tests
compile more than half are such ones. Here one whose equations all stand in `tests/small_primitives.py`, that JAX wrote
itself (`jnp.reshape`, `jax.random.normal`), and whose arrays lie where arrays lie by default is run equation by
equation. Programs of the library and of tests, those over several devices, and those that XLA rounds in its own way are
compiled as ever.

JAX has no public name for it: where the one that is looked for is not there, or may mean something else by now, it
does what it does.
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tests.small_primitives import CALLS, PRIMITIVES, ROUNDED, LeftToXlaError, add_to_product, is_known

_JAX = str(Path(jax.__file__).parent)
_MOST_EQUATIONS = 100
_MOST_CALLS = 50  # then compiling costs less
LEFT: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""How often each program of this process is still run by NumPy."""


def run_small_programs() -> None:
    """From here on in this process JAX's own small programs are run by NumPy."""
    pjit: Any = importlib.import_module("jax._src.pjit")
    compiled = getattr(pjit, "_pjit_call_impl_python", None)
    if compiled is None or jax.__version_info__ >= (0, 11):
        return

    def call(*args: Any, jaxpr: Any, **settings: Any) -> Any:
        if (calls := LEFT.get(jaxpr)) is None:
            calls = _MOST_CALLS if _is_of_jax(jaxpr) and _is_small(jaxpr.jaxpr) else 0
        LEFT[jaxpr] = max(calls - 1, 0)
        if calls and _is_plain(settings):
            results = _results(jaxpr, args)
            if results is not None:
                # No program, no profiler, no constants.
                return results, None, None, []
        return compiled(*args, jaxpr=jaxpr, **settings)

    pjit._pjit_call_impl_python = call


def _is_of_jax(closed: Any) -> bool:
    where = getattr(closed.jaxpr.debug_info, "func_filename", None) or ""
    return where.startswith(_JAX)


def _is_small(jaxpr: Any) -> bool:
    if any(variable.aval.weak_type or not isinstance(variable.aval.dtype, np.dtype) for variable in jaxpr.outvars):
        return False
    equations = list(_equations(jaxpr))
    names = [equation.primitive.name for equation in equations]
    has_effects = any(equation.effects for equation in equations)
    if len(names) > _MOST_EQUATIONS or has_effects or not all(map(is_known, equations)):
        return False
    # What `jax.random` draws is known step by step; elsewhere XLA may round two steps at once.
    return "random_bits" in names or sum(map(_rounds, equations)) <= 1


def _equations(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        if equation.primitive.name in CALLS:
            yield from _equations(equation.params["jaxpr"].jaxpr)
        else:
            yield equation


def _rounds(equation: Any) -> bool:
    is_inexact = any(jax.dtypes.issubdtype(variable.aval.dtype, np.inexact) for variable in equation.outvars)
    is_array = any(variable.aval.shape for variable in equation.outvars)
    narrows = equation.primitive.name == "convert_element_type" and is_array
    return is_inexact and (equation.primitive.name in ROUNDED or narrows)


def _is_plain(settings: dict[str, Any]) -> bool:
    """Whether nothing is said of layouts, donation and devices."""
    shardings = (*settings["in_shardings"], *settings["out_shardings"])
    layouts = (*settings["in_layouts"], *settings["out_layouts"])
    return (
        all(type(each).__name__ == "UnspecifiedValue" for each in shardings)
        and all(each is None for each in layouts)
        and not any(settings["donated_invars"])
        and settings["ctx_mesh"].empty
        and not settings["compiler_options_kvs"]
        and jax.config.jax_default_device is None
        and not jax.config.jax_debug_nans
        and not jax.config.jax_debug_infs
    )


def _results(closed: Any, args: Sequence[Any]) -> list[Any] | None:
    operands = [_on_the_host(arg) for arg in args]
    if any(operand is None for operand in operands):
        return None
    try:
        with np.errstate(all="ignore"):
            results = _run(closed, operands)
    except (LeftToXlaError, TypeError, ValueError):
        # The last two where NumPy does not know a dtype.
        return None
    # Copies: what is given may be a view of an operand, which the caller may donate.
    return [jax.device_put(np.array(result)) for result in results]


def _on_the_host(arg: Any) -> Any:
    """An argument as NumPy has it, or None where it may not be run here."""
    if isinstance(arg, (bool, int, float, complex, np.ndarray, np.generic)):
        return arg
    if not isinstance(arg, jax.Array):
        return None
    if jax.dtypes.issubdtype(arg.dtype, jax.dtypes.prng_key):
        data = getattr(arg, "_base_array", None)
        is_plain = data is not None and str(jax.random.key_impl(arg)) == "threefry2x32"
        return _on_the_host(data) if is_plain else None
    if getattr(arg, "_committed", True) or arg.is_deleted() or arg.devices() != {jax.devices()[0]}:
        return None
    return np.asarray(arg)


def _run(closed: Any, operands: Sequence[Any]) -> list[Any]:
    jaxpr = closed.jaxpr
    values: dict[Any, Any] = {}
    for variable, constant in zip(jaxpr.constvars, closed.consts, strict=True):
        values[variable] = np.asarray(constant)
    for variable, operand in zip(jaxpr.invars, operands, strict=True):
        is_array = isinstance(variable.aval.dtype, np.dtype)
        values[variable] = np.asarray(operand, variable.aval.dtype) if is_array else operand

    def read(atom: Any) -> Any:
        return np.asarray(atom.val, atom.aval.dtype) if hasattr(atom, "val") else values[atom]

    # XLA adds to a product without rounding it in between.
    products: dict[Any, Sequence[Any]] = {}
    for equation in jaxpr.eqns:
        given = [read(atom) for atom in equation.invars]
        factors = [products.get(atom) if not hasattr(atom, "val") else None for atom in equation.invars]
        if equation.primitive.name == "mul":
            products[equation.outvars[0]] = given
        if equation.primitive.name in CALLS:
            made = _run(equation.params["jaxpr"], given)
        elif equation.primitive.name in ("add", "sub") and any(each is not None for each in factors):
            made = [add_to_product(equation.primitive.name, given, factors)]
        else:
            made = PRIMITIVES[equation.primitive.name](equation, *given)
            made = made if equation.primitive.multiple_results else [made]
        for variable, value in zip(equation.outvars, made, strict=True):
            kind = variable.aval
            if not isinstance(kind.dtype, np.dtype) or np.shape(value) != kind.shape:
                raise LeftToXlaError
            values[variable] = np.asarray(value, kind.dtype)
    return [read(atom) for atom in jaxpr.outvars]
