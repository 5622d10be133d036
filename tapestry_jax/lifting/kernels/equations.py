"""Equations of a jaxpr as functions, and as kernels where nothing else is known of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import uuid4

from combinators.errors import KernelError
from combinators.frozen import dataclass
from combinators.kernels.fingerprint import fingerprint
from combinators.kernels.jaxprs import WRAPPERS, as_function, is_literal, is_program, program_of, programs_inside
from tapestry_jax.lifting.kernels.cells import as_computed


def function_of(equation: Any, within: Any) -> Callable[..., list[Any]]:
    """The function of one equation: all its operands, numbers too, to the list of its results.

    Args:
      equation: of any primitive.
      within: a jaxpr, closed or not, that says where programs come from.
    """
    variables = list(dict.fromkeys(atom for atom in equation.invars if not is_literal(atom)))
    first = [equation.invars.index(variable) for variable in variables]
    function = as_function(program_of(equation, variables, getattr(within, "jaxpr", within)))
    return lambda *operands: function(*(operands[at] for at in first))


class Function:
    """A function that was looked at once, told from others by a text."""

    def __init__(self, call: Callable[..., Any], text: str) -> None:
        self.call, self.text = call, text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Function) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _refused, (self.text,)


def _refused(text: str) -> Any:
    raise TypeError(f"a lifted function is stored nowhere: {text}")


@dataclass(frozen=True)
class Opaque:
    """What no rule knows, on whole operands.

    Attributes:
      primitive: its name.
      function: what it computes.
      source: where the user wrote it.
    """

    primitive: str
    function: Function
    source: str

    def __call__(self, *operands: Any) -> Any:
        """Its result, or the tuple of its results."""
        # Programs inside were traced outside of the mesh that they are run in, and so were the types of their results.
        out = [as_computed(leaf) for leaf in self.function.call(*operands)]
        return out[0] if len(out) == 1 else tuple(out)

    @property
    def opaque(self) -> tuple[str, str]:
        """What `Graph.opaque` shows: the primitive and where it was written."""
        return self.primitive, self.source


def text_of(equation: Any) -> str:
    """A text that is equal for equations that compute the same, in every process, and for no others.

    Types are part of it: those of random keys say how they are split and drawn from. What cannot be looked into is told
    by a number that is drawn, so that it is equal to nothing.
    """
    return hashlib.sha256(_equation(equation, {}).encode()).hexdigest()


def _equation(equation: Any, numbers: dict[Any, int]) -> str:
    operands = [_atom(atom, numbers) for atom in equation.invars]
    # What else calls say, such as where their operands lie, is of no account to what they compute.
    params = equation.params if equation.primitive.name not in WRAPPERS else dict(enumerate(programs_inside(equation)))
    told = [f"{name}={_param(value)}" for name, value in sorted(params.items())]
    results = [_atom(var, numbers) for var in equation.outvars]
    return f"{equation.primitive.name}({_listed(operands)},{_listed(told)},{_listed(results)})"


def _atom(atom: Any, numbers: dict[Any, int]) -> str:
    if is_literal(atom):
        return f"{_param(atom.val)}:{atom.aval}"
    return f"{numbers.setdefault(atom, len(numbers))}:{atom.aval}"


def _param(value: Any) -> str:
    if is_program(value):
        return _program(getattr(value, "jaxpr", value), getattr(value, "consts", ()))
    if type(value) in (tuple, list):
        return _listed(map(_param, value))
    try:
        return fingerprint(value)
    except (KernelError, RecursionError):
        return uuid4().hex


def _program(jaxpr: Any, constants: Sequence[Any]) -> str:
    numbers: dict[Any, int] = {}
    inputs = [_atom(var, numbers) for var in (*jaxpr.constvars, *jaxpr.invars)]
    equations = [_equation(equation, numbers) for equation in jaxpr.eqns]
    outputs = [_atom(atom, numbers) for atom in jaxpr.outvars]
    return "program" + _listed(map(_listed, (map(_param, constants), inputs, equations, outputs)))


def _listed(texts: Iterable[str]) -> str:
    return f"[{','.join(texts)}]"
