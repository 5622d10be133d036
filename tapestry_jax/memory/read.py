"""From a jaxpr to the program of one device: calls are inlined, the names of scopes become paths."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from combinators.frozen import dataclass
from combinators.kernels.jaxprs import is_literal, scan_parts
from tapestry_jax.lowering.on_device.recomputed import LATER
from tapestry_jax.memory.called import Called
from tapestry_jax.memory.equations import (
    cuts_inside,
    extents_of,
    group_of,
    is_turned,
    library_of,
    merged,
    parts_of,
    reduces_rows,
    turned,
)
from tapestry_jax.memory.needed import needed
from tapestry_jax.memory.primitives import kind_of
from tapestry_jax.memory.program import BRANCH, COSTLY, HELD, LOOP, REDUCED, VIEW, Node, Program, Value
from tapestry_jax.memory.scopes import Paths, Scopes
from tapestry_jax.planning.geometry.layout import dense_bytes
from tapestry_jax.planning.rewrites.platforms import Platforms

_PRODUCTS = frozenset(("dot_general", "conv_general_dilated"))
_EVENT = 4
"""Bytes of the number by which a value waits for others."""
_Way = tuple[int, tuple[bool | None, ...]]
"""A program that is called, and of each operand whether it is the same everywhere; None for constants."""
_COUNTED = frozenset(("iota", "axis_index"))
"""What differs from element to element, or from device to device, although it reads nothing."""

_ALIKE = frozenset(("pvary", "pcast"))
"""What changes no element, and no order."""


def read_program(jaxpr: Any, paths: Collection[str] = (), platforms: Platforms = ()) -> Program:
    """Read a closed jaxpr, whose arrays are those of one device as soon as a `shard_map` says how they lie.

    Args:
      jaxpr: of the program of a plan.
      paths: of its operations; an equation belongs to the innermost that its scopes name.
      platforms: what it is compiled for. Of a `lax.platform_dependent` one platform has one program; of several the
        one that takes most counts.
    """
    reader = _Reader(Paths(frozenset(paths)), _Known(platforms, {}, Counter(), {}))
    inputs = [reader.value(variable) for variable in jaxpr.jaxpr.invars]
    known: dict[Any, int | None] = dict(zip(jaxpr.jaxpr.invars, inputs, strict=True))
    outputs = reader.run(jaxpr.jaxpr, known, "")
    return needed(reader.program(inputs, outputs))


@dataclass(frozen=True, eq=False)
class _Said:
    """What an equation says by itself, wherever it is inlined: equal layers share the programs that they call.

    Attributes:
      scopes: the names of its scopes.
      reads: the variables that it reads; None for what is written out.
      inner: the program of a call that compilers inline.
      made: its results.
      node: an operation without operands and results, and with no path.
    """

    scopes: str
    reads: tuple[Any, ...]
    inner: Any
    made: tuple[Value, ...]
    node: Node


@dataclass(frozen=True, eq=False)
class _Known:
    """What was found out, for all that is read of one program. Its equations and programs live as long.

    Attributes:
      platforms: that it is compiled for.
      said: of an equation, by its identity.
      times: how often a program was called in the same way.
      called: what was called twice; None for what has to be read where it stands.
    """

    platforms: Platforms
    said: dict[int, _Said]
    times: Counter[_Way]
    called: dict[_Way, Called | None]


class _Reader:
    """Nodes and values of one program, while they are found."""

    def __init__(self, paths: Scopes, known: _Known) -> None:
        self.paths = paths
        self._known = known
        self._is_cut = False
        self.values: list[Value] = []
        self.nodes: list[Node] = []
        self.uniform: set[int] = set()
        self._orders: dict[int, tuple[int, tuple[int, ...]]] = {}

    def program(self, inputs: Sequence[int], outputs: Sequence[int | None]) -> Program:
        return Program(tuple(self.values), tuple(inputs), tuple(self.nodes), tuple(outputs))

    def value(self, variable: Any) -> int:
        self.values.append(_value(variable.aval))
        return len(self.values) - 1

    def run(self, jaxpr: Any, known: dict[Any, int | None], path: str) -> list[int | None]:
        """Inline a jaxpr whose inputs are `known`; returns its outputs."""
        for constant in jaxpr.constvars:
            known.setdefault(constant, None)
        for equation in jaxpr.eqns:
            self._equation(equation, known, path)
        return [None if is_literal(out) else known.get(out) for out in jaxpr.outvars]

    def _equation(self, equation: Any, known: dict[Any, int | None], path: str) -> None:
        said = self._known.said.get(id(equation))
        if said is None:
            said = self._known.said[id(equation)] = _said(equation, self._known.platforms)
        operands = [None if variable is None else known.get(variable) for variable in said.reads]
        here, inner, node = self.paths.inside(path, said.scopes), said.inner, said.node
        name = node.name
        if name == "shard_map":
            body = _jaxpr(equation.params["jaxpr"])
            operands = [self._local(number, variable) for number, variable in zip(operands, body.invars, strict=True)]
            inner = body
        if inner is not None:
            given = operands[1:] if name == "cond" else operands
            known.update(zip(equation.outvars, self._called(inner, given, here), strict=True))
            return
        if name == "scan" and equation.params["length"] == 1:
            known.update(zip(equation.outvars, self._once(equation, operands, here), strict=True))
            return
        if name == LATER:
            known.update(zip(equation.outvars, self._later(equation, operands, here), strict=True))
            return
        results = range(len(self.values), len(self.values) + len(said.made))
        self.values += said.made
        known.update(zip(equation.outvars, results, strict=True))
        clean, backward = self.paths.of(here)
        bodies, held, carries = self._loop(equation, here) if node.kind in (LOOP, BRANCH) else ((), 0, 0)
        if bodies:
            # The operands of loops stand where their bodies read them; constants are no buffers.
            operands = [self._constant() if number is None else number for number in operands]
            if name == "cond":
                operands = operands[1:]
        read = tuple([number for number in operands if number is not None])
        kind, library = node.kind, node.library
        if name == "broadcast_in_dim" and read and equation.invars[0].aval.size == equation.outvars[0].aval.size:
            kind = VIEW
        if name == "select_n" and (operands[0] is None or operands[0] in self.uniform):
            # Compilers know which one a constant chooses: the one that is no constant itself.
            varying = [number for number in read if number not in self.uniform]
            kind, read = (VIEW, tuple(varying)) if len(varying) == 1 else (kind, read)
        if name in _ALIKE or name == "transpose":
            read, library = self._order(equation, read, results[0], library)
        if kind <= COSTLY and name not in _COUNTED and self.uniform.issuperset(read):
            self.uniform.update(results)
        if library == "scatters" and operands[0] not in self.uniform:
            library = ""
        made = Node(
            kind,
            read,
            tuple(results),
            clean,
            backward,
            bodies,
            held,
            carries,
            node.rounds,
            library=library,
            turned=node.turned,
            merged=node.merged,
            name=name,
            parts=node.parts,
            extents=node.extents,
            rows=node.rows,
            cuts=node.cuts,
            group=node.group,
        )
        self.nodes.append(made)

    def _order(self, equation: Any, read: tuple[int, ...], made: int, library: str) -> tuple[tuple[int, ...], str]:
        """What a transposition reads: of one that turns another, what that one read. Two may be none."""
        if len(read) != 1:
            return read, library
        source, order = self._orders.get(read[0], (read[0], None))
        if equation.primitive.name == "transpose":
            then, shape = equation.params["permutation"], equation.outvars[0].aval.shape
            order = tuple(then if order is None else [order[axis] for axis in then])
            read, library = (source,), "turns" if is_turned(order, shape) else ""
        if order is not None:
            self._orders[made] = source, order
        return read, library

    def _called(self, inner: Any, operands: list[int | None], here: str) -> list[int | None]:
        """Inline a program that is called: the second time it is read by itself, from then on it is known."""
        way: _Way = id(inner), tuple([None if number is None else number in self.uniform for number in operands])
        self._known.times[way] += 1
        if self._known.times[way] == 1:
            return self.run(inner, dict(zip(inner.invars, operands, strict=True)), here)
        if way not in self._known.called:
            self._known.called[way] = self._by_itself(inner, way[1])
        called = self._known.called[way]
        if called is None:
            return self.run(inner, dict(zip(inner.invars, operands, strict=True)), here)
        paths, numbers = self.paths, called.numbers(operands, len(self.values))
        self.values += called.values
        self.nodes += called.placed(numbers, {scopes: paths.of(paths.inside(here, scopes)) for scopes in called.scopes})
        self.uniform.update([numbers[number] for number in called.uniform])
        return [None if number is None else numbers[number] for number in called.outputs]

    def _by_itself(self, inner: Any, way: tuple[bool | None, ...]) -> Called | None:
        """What a program makes, whoever calls it with constants, and with what is the same everywhere, there."""
        reader = _Reader(Scopes(), self._known)
        inputs = [
            None if is_uniform is None else reader.value(variable)
            for is_uniform, variable in zip(way, inner.invars, strict=True)
        ]
        given = {number for number, is_uniform in zip(inputs, way, strict=True) if number is not None and is_uniform}
        count = len(reader.values)
        reader.uniform |= given
        outputs = reader.run(inner, dict(zip(inner.invars, inputs, strict=True)), "")
        if reader._is_cut:
            return None
        made = frozenset(reader.uniform - given)
        return Called(count, tuple(reader.values[count:]), tuple(reader.nodes), tuple(outputs), made)

    def _later(self, equation: Any, operands: list[int | None], here: str) -> list[int | None]:
        """What is not there before some events: each value waits for a number that is read off all of them."""
        path, count = self.paths.of(here), equation.params["count"]
        events = tuple(number for number in operands[count:] if number is not None)
        self.values.append(Value(_EVENT, "uint32[]"))
        happened = len(self.values) - 1
        self.nodes.append(Node(REDUCED, events, (happened,), *path))
        made: list[int | None] = []
        for number, variable in zip(operands[:count], equation.outvars[:count], strict=True):
            made.append(None if number is None else self.value(variable))
            if number is not None:
                self.nodes.append(Node(HELD, (number, happened), (len(self.values) - 1,), *path, name=LATER))
        return [*made, *operands[count:]]

    def _once(self, equation: Any, operands: list[int | None], here: str) -> list[int | None]:
        """Inline a loop of one turn, as compilers do; its outputs."""
        body, path = _jaxpr(equation.params["jaxpr"]), self.paths.of(here)
        constants, carries = scan_parts(equation)
        first = constants + carries
        rows = [
            self._view(number, variable, path)
            for number, variable in zip(operands[first:], body.invars[first:], strict=True)
        ]
        outs = self.run(body, dict(zip(body.invars, (*operands[:first], *rows), strict=True)), here)
        made = [
            self._view(number, variable, path)
            for number, variable in zip(outs[carries:], equation.outvars[carries:], strict=True)
        ]
        return [*outs[:carries], *made]

    def _view(self, number: int | None, variable: Any, path: tuple[str, bool]) -> int | None:
        """The same elements as a value of another shape."""
        if number is None:
            return None
        result = self.value(variable)
        self.nodes.append(Node(VIEW, (number,), (result,), *path))
        return result

    def _local(self, number: int | None, variable: Any) -> int | None:
        """What enters a `shard_map` is a piece from now on; what stood outside of it is never there as a whole."""
        if number is not None:
            self.values[number] = _value(variable.aval)
        self._is_cut = True
        return number

    def _constant(self) -> int:
        self.values.append(Value(0, "constant"))
        return len(self.values) - 1

    def _body(self, jaxpr: Any, path: str) -> Program:
        reader, inner = _Reader(self.paths, self._known), _jaxpr(jaxpr)
        inputs = [reader.value(variable) for variable in inner.invars]
        outputs = reader.run(inner, dict(zip(inner.invars, inputs, strict=True)), path)
        return reader.program(inputs, outputs)

    def _loop(self, equation: Any, path: str) -> tuple[tuple[Program, ...], int, int]:
        """The programs inside of a loop or branch; how many operands stay as they are, and how many are handed on."""
        params = equation.params
        match equation.primitive.name:
            case "scan":
                return (self._body(params["jaxpr"], path),), *scan_parts(equation)
            case "while":
                body, held = params["body_jaxpr"], params["cond_nconsts"] + params["body_nconsts"]
                inner = self._body(body, path)
                # The constants of the condition come first, and the body does not know them.
                shifted = Program(
                    (*inner.values, *[Value(0, "constant")] * params["cond_nconsts"]),
                    (*range(len(inner.values), len(inner.values) + params["cond_nconsts"]), *inner.inputs),
                    inner.nodes,
                    inner.outputs,
                )
                return (shifted,), held, len(inner.outputs)
            case "cond":
                return tuple(self._body(branch, path) for branch in params["branches"]), 0, 0
            case _:
                return (), 0, 0


def _said(equation: Any, platforms: Platforms) -> _Said:
    """What is found out about an equation once."""
    name, params = equation.primitive.name, equation.params
    kind = LOOP if name in ("scan", "while") else BRANCH if name == "cond" else kind_of(name)
    node = Node(
        kind,
        (),
        (),
        "",
        rounds=name in _PRODUCTS and _is_default(params.get("precision")),
        library=library_of(equation),
        turned=turned(equation),
        merged=merged(equation),
        name=name,
        parts=parts_of(equation),
        extents=extents_of(equation),
        rows=reduces_rows(equation),
        cuts=cuts_inside(equation),
        group=group_of(equation),
    )
    made = tuple(_value(variable.aval) for variable in equation.outvars)
    reads = tuple(None if is_literal(variable) else variable for variable in equation.invars)
    return _Said(str(equation.source_info.name_stack), reads, _called(name, params, platforms), made, node)


def _called(name: str, params: Mapping[str, Any], platforms: Platforms) -> Any:
    """The program of a call that compilers inline."""
    if name == "cond":
        return _of_platform(params, platforms)
    if name in ("scan", "while", "shard_map", "pallas_call", "reduce", "reduce_window", "custom_partitioning"):
        return None
    found = params.get("jaxpr", params.get("call_jaxpr", params.get("fun_jaxpr")))
    return None if found is None or not hasattr(_jaxpr(found), "eqns") else _jaxpr(found)


def _of_platform(params: Mapping[str, Any], platforms: Platforms) -> Any:
    """The one branch that is lowered for a platform; None where values choose, or several platforms are asked for."""
    of_branches = params.get("branches_platforms")
    if of_branches is None or len(platforms) != 1:
        return None
    for branch, of in zip(params["branches"], of_branches, strict=True):
        if of is None or platforms[0] in of:
            return _jaxpr(branch)
    return None


def _is_default(precision: Any) -> bool:
    """Whether a product leaves it to the machine how its operands are rounded."""
    each = precision if isinstance(precision, tuple) else (precision,)
    return all(one is None or one == jax.lax.Precision.DEFAULT for one in each)


def _jaxpr(found: Any) -> Any:
    return getattr(found, "jaxpr", found)


def _value(aval: Any) -> Value:
    shape, dtype = getattr(aval, "shape", ()), getattr(aval, "dtype", None)
    return Value(0, "token") if dtype is None else _array(shape, dtype)


@lru_cache(maxsize=4096)
def _array(shape: tuple[int, ...], dtype: Any) -> Value:
    cells = math.prod(shape)
    size = 8 * cells if jnp.issubdtype(dtype, jax.dtypes.extended) else dense_bytes(cells, dtype)
    size = 0 if dtype == jax.dtypes.float0 else size
    return Value(size, f"{dtype}[{','.join(map(str, shape))}]")
