"""Programs of JAX, looked at: their literals, the programs inside of their equations, and running them; primitives.

JAX names their types in `jax.extend`, which loads Pallas as well: a twentieth of what `import jax` costs. So that is
left until a program is first looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, cast

import jax
from jax.interpreters import ad, batching, mlir  # noqa: TID251 - the public place of the rules of primitives

Rule = Callable[..., Any]

# Calls that only wrap a program, by the names that they have in the versions of jax that we support.
WRAPPERS = ("jit", "pjit", "closed_call", "core_call", "eval_jaxpr")

# Programs with a derivative that somebody wrote; what JAX 0.12 hides in a primitive may have one as well.
WRITTEN = frozenset(("custom_vjp_call", "custom_vjp_call_jaxpr", "call_hi_primitive"))
_PUSHED = frozenset(("custom_jvp_call", "custom_jvp_call_jaxpr"))
_OWN = ("equations/silent", "numerics/attention_kernel", "numerics/hiding")
_KNOWN = ("/jax/_src/", *(f"/combinators/{own}.py" for own in _OWN))
"""Where derivatives are written that are true."""


def is_literal(atom: Any) -> bool:
    """Whether an atom of a jaxpr is a literal, and no variable."""
    return isinstance(atom, _core().Literal)


def is_program(value: Any) -> bool:
    """Whether a parameter of an equation is a jaxpr, with its constants or without."""
    core = _core()
    return isinstance(value, (core.ClosedJaxpr, core.Jaxpr))


def programs_inside(equation: Any) -> Iterator[Any]:
    """The jaxprs among the parameters of an equation, such as the branches of a `cond`."""
    for value in equation.params.values():
        listed = cast("tuple[Any, ...]", value) if isinstance(value, (tuple, list)) else (value,)
        yield from filter(is_program, listed)


def as_function(program: Any) -> Callable[..., list[Any]]:
    """The function of arrays that a closed jaxpr is."""
    return _core().jaxpr_as_fun(program)


def program_of(equation: Any, variables: Sequence[Any], within: Any) -> Any:
    """The closed jaxpr of one equation of the jaxpr `within`, as a function of `variables`."""
    return part_of(within, [equation], variables, equation.outvars)


def part_of(within: Any, equations: Sequence[Any], variables: Sequence[Any], results: Sequence[Any]) -> Any:
    """The closed jaxpr of some equations of the jaxpr `within`, as a function of `variables`."""
    # Not a new one: that wants to be told where it comes from, in terms that are not public.
    program = within.replace(constvars=[], invars=list(variables), outvars=list(results), eqns=list(equations))
    return _core().ClosedJaxpr(program, [])


def scan_parts(equation: Any) -> tuple[int, int]:
    """How many constants and how many carries a scan has; its operands are constants, carries and slices.

    Told by the ranks, since the names of the parameters differ between the versions of jax that we support: the body
    sees slices without the axis that is scanned, and gives results without it.
    """
    body = equation.params["jaxpr"].jaxpr
    carries = sum(out.aval.ndim == inner.aval.ndim for out, inner in zip(equation.outvars, body.outvars, strict=True))
    unsliced = sum(atom.aval.ndim == inner.aval.ndim for atom, inner in zip(equation.invars, body.invars, strict=True))
    return unsliced - carries, carries


def is_written(equation: Any) -> bool:
    """Whether an equation has a derivative that somebody wrote: not JAX, whose own are true (`jax.nn.relu`), nor we."""
    name = equation.primitive.name
    return name in WRITTEN or (name in _PUSHED and not any(map(_is_known, programs_inside(equation))))


def _is_known(program: Any) -> bool:
    told = getattr(getattr(program, "jaxpr", program), "debug_info", None)
    source = str(getattr(told, "func_src_info", "")).replace("\\", "/")
    return any(place in source for place in _KNOWN)


def primitive_of(
    name: str, run: Rule, *, types: Rule, moved: Rule, batched: Rule, back: Rule | None = None, several: bool = False
) -> Any:
    """A primitive of our own, by the rules that JAX documents for those; all take its parameters by keyword.

    Args:
      name: as programs show it.
      run: from operands to what it gives; compiled so on every platform.
      types: the same of types.
      moved: from operands and their tangents to what it gives and the tangents of that.
      batched: from operands and the places of their mapped axes to the same of what it gives.
      back: from cotangents and operands to the cotangents of those; None where tangents never go through it.
      several: whether it gives a list.
    """
    primitive = _core().Primitive(name)
    primitive.multiple_results = several
    primitive.def_impl(run)
    primitive.def_abstract_eval(types)
    ad.primitive_jvps[primitive] = moved
    batching.primitive_batchers[primitive] = batched
    mlir.register_lowering(primitive, mlir.lower_fun(run, multiple_results=several))
    if back is not None:
        ad.primitive_transposes[primitive] = back
    return primitive


def calling(name: str, *, moved: Rule, batched: Rule, back: Rule) -> Any:
    """A primitive that calls its parameter `call_jaxpr`, a closed jaxpr, with rules of its own; see `primitive_of`."""

    def run(*operands: Any, call_jaxpr: Any, **_: Any) -> list[Any]:
        return as_function(call_jaxpr)(*operands)

    def types(*_: Any, call_jaxpr: Any, **__: Any) -> list[Any]:
        return [variable.aval for variable in call_jaxpr.jaxpr.outvars]

    return primitive_of(name, run, types=types, moved=moved, batched=batched, back=back, several=True)


def of_some(function: Rule, given: Sequence[Any], places: Sequence[int]) -> Rule:
    """A function as one of its arguments at some places; the others are `given`."""

    def run(*some: Any) -> Any:
        every = list(given)
        for at, value in zip(places, some, strict=True):
            every[at] = value
        return function(*every)

    return run


def pulled_back(
    program: Any, operands: Sequence[Any], results: Sequence[int], cotangents: Sequence[Any]
) -> dict[int, Any]:
    """What comes back to the undefined operands of a program that is linear in them, by their place.

    Args:
      program: a closed jaxpr.
      operands: values, or what JAX's rules of transposes have for those that are not known.
      results: those that something comes to.
      cotangents: of these.
    """
    places = [at for at, operand in enumerate(operands) if ad.is_undefined_primal(operand)]
    kinds = [program.jaxpr.invars[at].aval for at in places]
    # Inside of `shard_map` a type says over which axes it varies, and in which mesh these are.
    structs = [
        jax.ShapeDtypeStruct(k.shape, k.dtype, sharding=k.sharding, manual_axis_type=k.manual_axis_type) for k in kinds
    ]
    run = of_some(as_function(program), operands, places)
    found = jax.linear_transpose(lambda *some: list(map(run(*some).__getitem__, results)), *structs)(list(cotangents))
    return dict(zip(places, found, strict=True))


@cache
def _core() -> Any:
    # Not at the top: see above.
    from jax.extend import core

    return core
