"""Whether two programs are one: the same equations, of arrays of the same types, wired alike.

What JAX makes of such programs by its own rules, their derivatives, is one program as well, so that nobody needs to
trace both. Numbers in them may differ (a mean divides by its size), and parameters that follow from types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from combinators.kernels.jaxprs import is_literal, is_program

_TOLD = ("dimension_numbers", "axes", "dimension", "permutation", "broadcast_dimensions", "reverse", "padding")
"""Parameters that types do not tell."""


def is_same(one: Any, other: Any) -> bool:
    """Whether two programs are the same, but for numbers in them.

    Args:
      one: a jaxpr, or what `resized` gives of one.
      other: the same.
    """
    one, other = getattr(one, "jaxpr", one), getattr(other, "jaxpr", other)
    if len(one.eqns) != len(other.eqns):
        return False
    place: dict[Any, Any] = {}

    def alike(atoms: Any, others: Any, *, new: bool = False) -> bool:
        if len(atoms) != len(others):
            return False
        return all(_is_type(a.aval, b.aval) and wired(a, b, new=new) for a, b in zip(atoms, others, strict=True))

    def wired(atom: Any, peer: Any, *, new: bool) -> bool:
        if is_literal(atom) or is_literal(peer):
            return is_literal(atom) and is_literal(peer)
        return place.setdefault(atom, peer) is peer if new else place.get(atom) is peer

    if not alike(one.constvars, other.constvars, new=True) or not alike(one.invars, other.invars, new=True):
        return False
    for own, peer in zip(one.eqns, other.eqns, strict=True):
        if own.primitive is not peer.primitive or not alike(own.invars, peer.invars):
            return False
        if not _is_param(own.params, peer.params) or not alike(own.outvars, peer.outvars, new=True):
            return False
    return alike(one.outvars, other.outvars)


def has_rules(program: Any) -> bool:
    """Whether a program calls what has a derivative of its own, which may look at sizes, or a kernel of Pallas."""
    for equation in getattr(program, "jaxpr", program).eqns:
        name = equation.primitive.name
        if name.startswith("custom_") or name == "pallas_call" or any(map(has_rules, _inside(equation.params))):
            return True
    return False


def _is_type(one: Any, other: Any) -> bool:
    return getattr(one, "shape", ()) == getattr(other, "shape", ()) and _dtype(one) == _dtype(other)


def _dtype(aval: Any) -> Any:
    return getattr(aval, "dtype", None)


def _is_param(own: Any, peer: Any) -> bool:
    """Whether parameters say the same of how axes go, and hold the same programs."""
    if any(own.get(name) != peer.get(name) for name in _TOLD):
        return False
    mine, others = [*_inside(own)], [*_inside(peer)]
    return len(mine) == len(others) and all(is_same(a, b) for a, b in zip(mine, others, strict=True))


def _inside(params: Any) -> Iterator[Any]:
    """The programs among the parameters of an equation."""
    for value in params.values():
        yield from (each for each in (value if isinstance(value, tuple) else (value,)) if _is_program(each))


def _is_program(value: Any) -> bool:
    return is_program(value) or hasattr(value, "eqns")
