"""Kernels with loops inside an SPMD program.

A loop whose carry starts from a constant (`jnp.zeros`) and takes in a value that varies over the mesh changes its type
from turn to turn, which `shard_map` refuses. Users write such kernels, and so does JAX itself (`searchsorted`, linear
algebra). Such a kernel's own program is run again with every carry varying from the start.

Functions with a derivative of their own (`jax.nn.relu`) keep it, but JAX cannot differentiate what was rewritten around
them: such a kernel runs in a region of its own, where types are not checked (`untyped`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import lax

from combinators.kernels.jaxprs import WRAPPERS, as_function, is_literal, program_of, scan_parts
from tapestry_jax.lowering.on_device.varying import vary

_LOOPS = ("scan", "while", "cond")
_RULED = ("custom_jvp_call", "custom_vjp_call")


def with_varying_loops(kernel: Callable[..., Any], axes: frozenset[str]) -> Callable[..., Any]:
    """The kernel, with the carries of its loops varying over `axes`."""
    if not axes:
        return kernel

    @functools.wraps(kernel, assigned=(), updated=())
    def run(*blocks: Any) -> Any:
        try:
            return kernel(*blocks)
        except TypeError:
            structs = [jax.ShapeDtypeStruct(block.shape, block.dtype) for block in blocks]
            closed, out = jax.make_jaxpr(kernel, return_shape=True)(*structs)
            if not _contains_loop(closed.jaxpr):
                raise
        outputs = run_program(closed.jaxpr, closed.consts, list(blocks), sorted(axes))
        return jax.tree.unflatten(jax.tree.structure(out), outputs)

    return run


def _contains_loop(jaxpr: Any) -> bool:
    for equation in jaxpr.eqns:
        if equation.primitive.name in _LOOPS:
            return True
        inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
        if inner is not None and _contains_loop(getattr(inner, "jaxpr", inner)):
            return True
    return False


def run_program(
    jaxpr: Any,
    constants: Sequence[Any],
    arguments: Sequence[Any],
    axes: list[str],
    wanted: Sequence[Any] | None = None,
    *,
    derived: bool = True,
) -> list[Any]:
    """Run a jaxpr equation by equation; loops are built anew.

    Args:
      jaxpr: the program.
      constants: of the program.
      arguments: of the program.
      axes: mesh axes over which carries vary.
      wanted: the variables to return; the program's results where it is None.
      derived: whether somebody may want a derivative; else calls with one of their own are what they call.
    """
    return _run(jaxpr, constants, arguments, _How(axes, derived), wanted)


@dataclass(frozen=True)
class _How:
    """Over which mesh axes values vary, and whether derivatives are kept."""

    axes: list[str]
    derived: bool


def _run(
    jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any], how: _How, wanted: Sequence[Any] | None = None
) -> list[Any]:
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
    values |= dict(zip(jaxpr.invars, arguments, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if is_literal(atom) else values[atom]

    for equation in jaxpr.eqns:
        outputs = _bind(jaxpr, equation, [read(atom) for atom in equation.invars], how)
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in (jaxpr.outvars if wanted is None else wanted)]


def _bind(jaxpr: Any, equation: Any, operands: list[Any], how: _How) -> list[Any]:
    name, params = equation.primitive.name, equation.params
    if name == "scan":
        return _scan(equation, operands, how)
    if name == "while":
        return _while(params, operands, how)
    if name == "cond":
        return _cond(params, operands, how)
    inner = params.get("jaxpr", params.get("call_jaxpr"))
    # Their rules for derivatives are none, so the program may stand in their place.
    if (name in WRAPPERS or (name in _RULED and not how.derived)) and inner is not None:
        return _closed(inner, operands, how)
    # Primitives, unlike the functions around them, take operands that all vary alike.
    operands = _varied(operands, how)
    if name == "pvary":  # of what varies JAX 0.12 makes nothing more
        return [vary(value, params["axes"]) for value in operands]
    if inner is not None or any(callable(value) for value in params.values()):
        return _single(jaxpr, equation, operands)
    outputs = equation.primitive.bind(*operands, **params)
    return list(outputs) if equation.primitive.multiple_results else [outputs]


def _single(jaxpr: Any, equation: Any, operands: list[Any]) -> list[Any]:
    """An equation with functions inside, such as a custom derivative, run as a program of its own."""
    known = [(atom, value) for atom, value in zip(equation.invars, operands, strict=True) if not is_literal(atom)]
    variables = dict(known)
    return list(as_function(program_of(equation, list(variables), jaxpr))(*variables.values()))


def _closed(closed: Any, operands: Sequence[Any], how: _How) -> list[Any]:
    return _run(closed.jaxpr, closed.consts, operands, how)


def _varied(values: Sequence[Any], how: _How) -> list[Any]:
    return [vary(value, how.axes) for value in values]


def _scan(equation: Any, operands: list[Any], how: _How) -> list[Any]:
    (constants, carries), params = scan_parts(equation), equation.params
    fixed, initial, slices = (
        operands[:constants],
        operands[constants : constants + carries],
        operands[constants + carries :],
    )

    def turn(carry: list[Any], piece: list[Any]) -> tuple[list[Any], list[Any]]:
        outputs = _closed(params["jaxpr"], [*fixed, *carry, *piece], how)
        return _varied(outputs[:carries], how), outputs[carries:]

    final, stacked = lax.scan(
        turn,
        _varied(initial, how),
        slices,
        length=params["length"],
        reverse=params["reverse"],
        unroll=params["unroll"],
    )
    return [*final, *stacked]


def _while(params: Any, operands: list[Any], how: _How) -> list[Any]:
    of_condition, of_body = params["cond_nconsts"], params["body_nconsts"]
    asked, fixed = operands[:of_condition], operands[of_condition : of_condition + of_body]
    return lax.while_loop(
        lambda carry: _closed(params["cond_jaxpr"], [*asked, *carry], how)[0],
        lambda carry: _varied(_closed(params["body_jaxpr"], [*fixed, *carry], how), how),
        _varied(operands[of_condition + of_body :], how),
    )


def _cond(params: Any, operands: list[Any], how: _How) -> list[Any]:
    index, rest = operands[0], operands[1:]
    branches = [
        lambda *values, branch=branch: _varied(_closed(branch, values, how), how) for branch in params["branches"]
    ]
    return lax.switch(index, branches, *rest)
