"""Prefixes by an associative function, found among the equations that `lax.associative_scan` writes for them.

JAX keeps no equation of such a scan: its tree of slices, pads and calls of the function stands in the jaxpr. `merged`
proves which of them are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from combinators.frozen import dataclass
from combinators.kernels.jaxprs import is_literal, part_of
from tapestry_jax.lifting.trees.merged import Search, Steps, begun

NAME = "associative_scan"


@dataclass(frozen=True)
class Primitive:
    """What stands in the place of a primitive.

    Attributes:
      name: of the rule.
    """

    name: str
    multiple_results: bool = True


@dataclass(frozen=True, eq=False)
class Prefixes:
    """The equations of a scan as one.

    Attributes:
      primitive: called `associative_scan`.
      invars: the steps, leaf by leaf.
      outvars: the prefixes.
      params: `body`, the closed jaxpr of the function, of the leaves of both sides; `axes`, the scanned axis of every
        leaf; `reverse`; and `equations`, the closed jaxpr of all that this stands for.
      source_info: where it was written.
      effects: none.
    """

    primitive: Primitive
    invars: tuple[Any, ...]
    outvars: tuple[Any, ...]
    params: dict[str, Any]
    source_info: Any
    effects: frozenset[Any] = frozenset()


def with_prefixes(jaxpr: Any) -> Sequence[Any]:
    """The equations of a jaxpr, each scan by an associative function in the place of those that it was written as."""
    equations, made, at = jaxpr.eqns, list[Any](), 0
    while at < len(equations):
        steps = begun(equations, at)
        found = None if steps is None else _found(jaxpr, at, steps)
        if found is None:
            made.append(equations[at])
            at += 1
        else:
            made.append(found)
            at += len(found.params["equations"].jaxpr.eqns)
    return _turned(jaxpr, made)


def _turned(jaxpr: Any, equations: list[Any]) -> list[Any]:
    """The equations, with scans of turned steps whose prefixes are turned back as scans from the end."""
    if not any(isinstance(equation, Prefixes) for equation in equations):
        return equations
    makers = {var: equation for equation in equations for var in equation.outvars}
    readers: dict[Any, list[Any]] = {}
    for equation in (*equations, jaxpr):
        for atom in equation.invars if equation is not jaxpr else jaxpr.outvars:
            if not is_literal(atom):
                readers.setdefault(atom, []).append(equation)
    gone: set[int] = set()
    made: list[Any] = []
    for equation in equations:
        if isinstance(equation, Prefixes):
            axes = equation.params["axes"]
            before = [makers.get(var) for var in equation.invars]
            after = [readers.get(var, []) for var in equation.outvars]
            alone = all(len(listed) <= 1 for listed in after)
            ends = [
                *zip(before, axes, strict=True),
                *((e, axis) for es, axis in zip(after, axes, strict=True) for e in es),
            ]
            if alone and any(after) and all(_turns(e, axis) for e, axis in ends):
                back = [listed[0] if listed else None for listed in after]
                gone |= {id(e) for e in back}
                equation = _backwards(jaxpr, equation, before, back)
        made.append(equation)
    return [equation for equation in made if id(equation) not in gone]


def _turns(equation: Any, axis: int) -> bool:
    name = getattr(getattr(equation, "primitive", None), "name", "")
    return name == "rev" and tuple(equation.params["dimensions"]) == (axis,)


def _backwards(jaxpr: Any, scan: Prefixes, before: Sequence[Any], after: Sequence[Any]) -> Prefixes:
    """A scan from the end, with what turns its steps and its prefixes."""
    leaves = tuple(equation.invars[0] for equation in before)
    results = tuple(v if e is None else e.outvars[0] for v, e in zip(scan.outvars, after, strict=True))
    inside = [*before, *scan.params["equations"].jaxpr.eqns, *(e for e in after if e is not None)]
    params = scan.params | {"reverse": True, "equations": part_of(jaxpr, inside, leaves, results)}
    return replace(scan, invars=leaves, outvars=results, params=params)


def _found(jaxpr: Any, at: int, steps: Steps) -> Prefixes | None:
    """The scan of some steps, which begins with an equation."""
    search = Search(jaxpr.eqns, at, steps)
    results = search.run()
    if results is None:
        return None
    inside, later = jaxpr.eqns[at : search.end], jaxpr.eqns[search.end :]
    read = {id(atom) for equation in later for atom in equation.invars} | {id(atom) for atom in jaxpr.outvars}
    if any(id(var) in read for equation in inside for var in equation.outvars if var not in results):
        return None
    params = {
        "body": search.body(jaxpr),
        "axes": steps.axes,
        "reverse": False,
        "equations": part_of(jaxpr, inside, steps.leaves, results),
    }
    return Prefixes(Primitive(NAME), steps.leaves, tuple(results), params, jaxpr.eqns[at].source_info)
