"""From the equations of a jaxpr to steps: each by the rule of its primitive, what has none as it is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import numpy as np

from combinators.errors import GraphError, message
from combinators.index_space.axis import Axis, Term
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature
from combinators.index_space.tensor_type import is_key, words_of
from combinators.kernels.jaxprs import is_literal
from combinators.operations.operation import Operation
from tapestry_jax.lifting.callables.place import place_of
from tapestry_jax.lifting.callables.scopes import scope_of
from tapestry_jax.lifting.constants import constant_step, scalar_of
from tapestry_jax.lifting.kernels.cells import Instruction, Program
from tapestry_jax.lifting.trees.prefixes import with_prefixes
from tapestry_jax.lifting.values import Atom, CellStep, Dims, LeafStep, LoopStep, Step, Steps, Values

KEYS = "random keys"
"""The rule for equations of random keys, whatever their primitive."""

Lift = Callable[["Walk", Any, list[Atom]], "list[Atom] | None"]
"""A rule: writes the steps of an equation and returns its results; None where it does not know this one."""


class Walk:
    """Writes the steps of one jaxpr; those of loops inside are written by walks of their own over the same values.

    Args:
      rules: primitive to rule.
      unknown: the rule for what no rule knows.
      values: the types of all values so far.
      through: primitives that hold programs, whose own rules take random keys.

    Attributes:
      outer: texts of the functions whose derivatives this program is, or is in, the outermost first; a loop's is not.
      around: those and all around.
      regions: the paths of what is under `jax.checkpoint`.
      maps: whether loops that hand nothing on are maps.
    """

    def __init__(self, rules: dict[str, Lift], unknown: Lift, values: Values, through: Collection[str] = ()) -> None:
        self.rules, self.unknown, self.values, self.steps = rules, unknown, values, list[Step]()
        self.through = through
        self.place, self.scope, self.root = "", "", ""
        self.within: Any = None
        self.outer, self.around = tuple[str, ...](), frozenset[str]()
        self.regions, self.maps = set[str](), False

    def run(
        self, jaxpr: Any, constants: Sequence[Any], atoms: Sequence[Atom], *, as_written: bool = False
    ) -> list[Atom]:
        """Write down a jaxpr, whose inputs are `atoms`; returns its results.

        Args:
          jaxpr: the program.
          constants: that it holds.
          atoms: its inputs.
          as_written: each equation by itself, where several would be one scan.
        """
        outer, self.within = self.within, jaxpr
        known: dict[Any, Atom] = dict(zip(jaxpr.invars, atoms, strict=True))
        for var, value in zip(jaxpr.constvars, constants, strict=True):
            reader = next((equation for equation in jaxpr.eqns if var in equation.invars), None)
            known[var] = self.constant(value, place_of(reader, self.place))

        def read(atom: Any) -> Atom:
            return scalar_of(atom.val, atom.aval.dtype) if is_literal(atom) else known[atom]

        for equation in jaxpr.eqns if as_written else with_prefixes(jaxpr):
            results = self.equation(equation, [read(atom) for atom in equation.invars])
            known |= dict(zip(equation.outvars, results, strict=True))
        self.within = outer
        return [read(atom) for atom in jaxpr.outvars]

    def equation(self, equation: Any, atoms: list[Atom]) -> list[Atom]:
        """Write down one equation; one that gives nothing, as dead code may be left, is none."""
        if not equation.outvars and not equation.effects:
            return []
        outer, around, first = self.place, self.scope, len(self.steps)
        self.place, self.scope = place_of(equation, outer), scope_of(equation, around, self.root)
        rule = self.rules.get(self.kind(equation))
        found = rule(self, equation, atoms) if rule is not None else None
        if found is None and _has_keys(equation):
            found = self.rules[KEYS](self, equation, atoms)
        results = found if found is not None else self.unknown(self, equation, atoms)
        assert results is not None
        for step in self.steps[first:]:
            step.scope = step.scope or self.scope
        self.place, self.scope = outer, around
        return results

    def kind(self, equation: Any) -> str:
        """The name of the rule of an equation: that of its primitive, but where it moves or makes random keys."""
        name = equation.primitive.name
        return KEYS if _has_keys(equation) and name not in self.through else name

    # What rules write with

    def inner(self) -> Walk:
        """A walk for the body of a loop."""
        made = Walk(self.rules, self.unknown, self.values, self.through)
        made.root, made.place, made.around, made.regions = self.root, self.place, self.around, self.regions
        made.maps = self.maps
        return made

    def shape(self, atom: Atom) -> tuple[int, ...]:
        """The shape of a value; numbers have none."""
        return self.values.shapes[atom] if type(atom) is int else ()

    def dtype(self, atom: Any) -> Any:
        """The dtype of a value or number."""
        return self.values.dtypes[atom] if type(atom) is int else np.dtype(atom.dtype)

    def constant(self, array: Any, place: str) -> Atom:
        """An array that the function holds, and where it is used; a random key is its words.

        Raises:
          GraphError: when JAX is tracing it, so that it has no numbers.
        """
        try:
            array = np.asarray(words_of(array))
        except jax.errors.TracerArrayConversionError:
            raise GraphError(
                message(
                    f"the function that is lifted holds a value that JAX is tracing, {jax.typeof(array)}",
                    *([f"used at {place}"] if place else []),
                    remedy="Pass it as an argument: tp.lift(lambda x, w: ..., x, w).",
                )
            ) from None
        if array.ndim == 0:
            return scalar_of(array, array.dtype)
        step = constant_step(array, self.values, place)
        self.steps.append(step)
        return step.results[0]

    def value(self, atom: Atom) -> int:
        """The value of an atom; a number becomes a tensor without axes."""
        if type(atom) is int:
            return atom
        return self.cells("number", [], Program((), (atom,)), (), self.dtype(atom))

    def cells(
        self,
        name: str,
        operands: Sequence[tuple[int, Dims]],
        program: Program,
        shape: Sequence[int],
        dtype: Any,
        coordinates: Sequence[int] = (),
    ) -> int:
        """A program cell by cell whose dimension `d` is axis `d` of its result, where that is not of size 1."""
        value = self.values.new(shape, dtype)
        used = {dim: at for at, dim in enumerate(dim for dim, size in enumerate(shape) if size != 1)}
        told = [(v, tuple(None if d is None else used[d] for d in dims)) for v, dims in operands]
        at = [used[dim] for dim in coordinates]
        result = tuple(used.get(axis) for axis in range(len(shape)))
        sizes = [shape[dim] for dim in used]
        self.steps.append(CellStep(name, told, at, program, [(value, result)], sizes, self.place))
        return value

    def elementwise(self, instruction: Instruction, atoms: Sequence[Atom], outs: Sequence[Any]) -> list[Atom]:
        """One instruction on operands that align from the first axis on; its inputs count the atoms."""
        shape = tuple(outs[0].shape)
        used = {dim: at for at, dim in enumerate(dim for dim, size in enumerate(shape) if size != 1)}
        full = tuple(used.get(axis) for axis in range(len(shape)))
        listed = list(dict.fromkeys(atom for atom in atoms if type(atom) is int))
        operands = [(value, self._aligned(value, full)) for value in listed]
        inputs = tuple(listed.index(atom) if type(atom) is int else atom for atom in atoms)
        results = [self.values.new(shape, out.dtype) for out in outs]
        told = Instruction(instruction.primitive, instruction.params, inputs, instruction.rule)
        program = Program((told,), tuple(range(len(listed), len(listed) + len(outs))))
        sizes = [shape[dim] for dim in used]
        name = instruction.primitive
        self.steps.append(CellStep(name, operands, [], program, [(v, full) for v in results], sizes, self.place))
        return list(results)

    def _aligned(self, value: int, full: Dims) -> Dims:
        own = self.values.shapes[value]
        return tuple(None if size == 1 else dim for size, dim in zip(own, full, strict=True)) if own else ()

    def leaf(self, operation: Operation, operands: Sequence[Atom], outs: Sequence[Any]) -> list[Atom]:
        """An operation whose signature fits values of these shapes."""
        results = [self.values.new(out.shape, out.dtype) for out in outs]
        self.steps.append(LeafStep(operation, [self.value(atom) for atom in operands], results, self.place))
        return list(results)

    def loop(self, step: LoopStep) -> None:
        """A loop."""
        self.steps.append(step)

    def finish(self, inputs: Sequence[int], outputs: Sequence[Atom]) -> Steps:
        """All that was written."""
        listed = [self.value(atom) for atom in outputs]
        return Steps(list(inputs), self.steps, listed)


def _has_keys(equation: Any) -> bool:
    return any(is_key(getattr(var.aval, "dtype", None)) for var in (*equation.invars, *equation.outvars))


def axes(shape: Sequence[int], names: Sequence[str], whole: Sequence[int] = (), bare: Collection[str] = ()) -> Operand:
    """An operand with a dimension for every axis.

    Args:
      shape: of the tensor.
      names: of the dimensions.
      whole: axes that are whole.
      bare: dimensions that are written where their size is 1 too, as results of folds are; others are `1` there.
    """
    return Operand(
        tuple(
            Axis("one") if size == 1 and name not in bare else Axis("affine", (Term(name, 1, axis in whole),))
            for axis, (size, name) in enumerate(zip(shape, names, strict=True))
        )
    )


def signature(operands: Sequence[Operand], results: Sequence[Operand]) -> Signature:
    """A signature of local names."""
    whole = {t.name for o in (*operands, *results) for a in o.axes for t in a.terms if t.whole}
    return Signature(tuple(_told(o, whole) for o in operands), tuple(_told(o, whole) for o in results))


def coordinates(*dims: str) -> list[Operand]:
    """Operands that hold the coordinates of these dimensions."""
    return [Operand(coordinate=dim) for dim in dims]


def _told(operand: Operand, whole: set[str]) -> Operand:
    if operand.coordinate is not None or not any(
        t.name in whole and not t.whole for a in operand.axes for t in a.terms
    ):
        return operand
    listed = tuple(
        Axis(a.kind, tuple(Term(t.name, t.coefficient, t.whole or t.name in whole) for t in a.terms), a.offset)
        for a in operand.axes
    )
    return Operand(listed, coordinate=operand.coordinate)


def words(aval: Any) -> jax.ShapeDtypeStruct:
    """The type of a value; of random keys that of their words."""
    kind = jax.ShapeDtypeStruct(aval.shape, aval.dtype)
    return jax.eval_shape(jax.random.key_data, kind) if is_key(aval.dtype) else kind


def types_of(equation: Any) -> list[jax.ShapeDtypeStruct]:
    """The types of an equation's results."""
    return [words(var.aval) for var in equation.outvars]
