"""Recording a program: every applied operation becomes a node, equal ones the same node."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import jax

from combinators.errors import CompositionError, GraphError, message
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import DEEPEST_LOOPS, Ref
from combinators.index_space.naming import AxisName, AxisVariable, Resolver, find, may_be_one, tell_apart, unify
from combinators.operations.binding import Names, bind, check_distinct, local_names, meetings, suggest_names
from combinators.operations.operation import Operation
from combinators.operations.shaped import Shaped, shape
from combinators.recording.arithmetic import binary, elementwise, unary
from combinators.recording.carries import agreed_carries, check_carries, check_turns, slice_of
from combinators.recording.current import check_values, recording
from combinators.recording.paths import Paths
from combinators.recording.pending import Pending, PendingLoop, axes_of, resolved_graph, together
from combinators.recording.renaming import chain_renames, check_has_axes, give_way_together, hoist_renames
from combinators.recording.reorder import astype, transpose
from combinators.recording.slicing import pick
from combinators.recording.value import Value


class Trace:
    """The recording of one program. It lives as long as tracing does; what stays is the `Graph`."""

    # What the operators and methods of values do: functions over values, which values themselves could not import.
    binary = staticmethod(binary)
    unary = staticmethod(unary)
    elementwise = staticmethod(elementwise)
    astype = staticmethod(astype)
    transpose = staticmethod(transpose)
    pick = staticmethod(pick)

    def __init__(self, outer: Trace | None = None) -> None:
        # Of a loop's body, the program around it: its values may be used inside, as constants of the loop.
        self.outer = outer
        # Names of axes that nobody wrote, and that something had to be renamed from or to.
        self.coined: set[str] = set() if outer is None else outer.coined
        # Names that axes have, those of the first nodes, which were read.
        self.taken: set[str] = set()
        self._read = 0
        self._told_apart: set[Names] = set()
        self._captured: dict[Ref, Value] = {}
        self._is_over = False
        self._nodes: list[Pending] = []
        self._same: dict[Any, int] = {}
        self._paths = Paths()
        self._named: dict[str, Value] = {}
        self._held: dict[int, tuple[object, Any]] = {}

    @property
    def nodes(self) -> Sequence[Pending]:
        """What was recorded so far, in order."""
        return self._nodes

    # Recording

    def provide(self, holder: object, values: Any) -> None:
        """Say which values stand for the arrays of an arrow that holds some."""
        self._held[id(holder)] = (holder, values)

    def write(self, holder: object, values: Any) -> None:
        """Say which values stand for the arrays of an arrow from now on.

        Raises:
          GraphError: inside of a loop, which does not carry them.
        """
        if self.outer is not None:
            raise GraphError(
                message(
                    f"`{getattr(holder, 'name', holder)}` writes what it holds inside of a loop",
                    "the loop does not carry it, so the next turn would not see it, and it would be lost",
                    remedy="Carry it through the loop, and write what comes out; layers of a tp.nnx.Stack may write.",
                )
            )
        self.provide(holder, values)

    def held(self, holder: object) -> Any:
        """The values that stand for the arrays of an arrow.

        Raises:
          GraphError: when the arrow was not among what is traced.
        """
        if id(holder) in self._held:
            return self._held[id(holder)][1]
        if self.outer is not None:
            return jax.tree.map(self._own_one, self.outer.held(holder))
        raise GraphError(
            message(
                f"`{getattr(holder, 'name', holder)}` holds arrays that this program does not know",
                remedy="Trace it as an arrow (f >> g), or pass it, or its arrays, as an argument of the program.",
            )
        )

    def input(self, name: str, names: Names, shape: tuple[int, ...], dtype: Any) -> Value:
        """A value from outside."""
        return self._record(Pending("input", (), [], name), [(names, jax.ShapeDtypeStruct(shape, dtype))])[0]

    def apply(self, operation: Operation, operands: Sequence[Value], *, suggests: bool = True) -> Any:
        """Apply an operation; returns its result, a pytree of values.

        Args:
          operation: what to apply.
          operands: values of this program, or of the programs around it.
          suggests: whether somebody wrote the names of its signature, so that axes without a name may take them.

        Raises:
          SignatureError: where sizes or ranks do not fit.
          CompositionError: where names do not.
        """
        operands = self.own(operation.name, operands)
        shaped = shape(operation, tuple(value.struct for value in operands))
        hoisted = hoist_renames(self._nodes, shaped, operands)
        if hoisted is not None:
            sources, mapping = hoisted
            result = self.apply(operation, sources, suggests=suggests)
            return jax.tree.map(lambda value: self._rename_some(value, mapping), result)
        try:
            bound, names = bind(shaped, [value.axes for value in operands])
        except CompositionError:
            given = give_way_together(operands, meetings(shaped, [value.axes for value in operands]))
            if all(value is operand for value, operand in zip(given, operands, strict=True)):
                raise
            return self.apply(operation, given, suggests=suggests)
        if suggests:
            suggest_names(shaped, [value.axes for value in operands])
            if self.coined:
                self.stick(local_names(shaped))
        operands_refs = tuple(value.ref for value in operands)
        key = (shaped.operation, operands_refs)
        if key not in self._same:
            pending = Pending("apply", operands_refs, [], "", shaped, bound, written=_written(shaped, operands))
            self._record(pending, list(zip(names, shaped.results, strict=True)), operation.name)
            self._same[key] = len(self._nodes) - 1
        return jax.tree.unflatten(shaped.result_tree, list(self._nodes[self._same[key]].results))

    def rename(self, value: Value, names: Mapping[str, str], *, settles: bool = True) -> Value:
        """The same tensor under other names; `settles` where names that are only suggested are known to be meant."""
        (value,) = self.own("rename", [value])
        if settles:
            value.settle(set(names))
        check_has_axes(value, names)
        return self._rename_some(*chain_renames(self._nodes, value, names))

    def wrote(self, axis: AxisName) -> bool:
        """Whether an axis has a name that somebody wrote."""
        return isinstance(found := find(axis), str) and found not in self.coined

    def stick(self, names: Iterable[str]) -> None:
        """Take note that somebody writes these names: from now on they do not give way, whatever had them before."""
        self.coined.difference_update(names)

    def coin(self, axis: AxisName) -> str:
        """The name of an axis; one without gets now what is suggested for it, numbered where that is another's.

        Suggestions that may be shared are, such as those of equal layers.
        """
        found = find(axis)
        if isinstance(found, str):
            return found
        programs = list(self._around())
        for program in programs:
            program._read_names()

        def is_free(text: str) -> bool:
            if text in self.coined:
                return found.is_shared
            return not any(text in program.taken for program in programs)

        stem = found.hint or "axis"
        texts = (f"{stem}_{number}" if number else stem for number in count())
        label = next(text for text in texts if is_free(text) and may_be_one(found, text))
        unify(found, label)
        self.coined.add(label)
        return label

    def renamed_from(self, value: Value, name: str) -> str | None:
        """What an axis of a value was called before it was renamed; None where it was not."""
        renamed = value.trace._nodes[value.ref.node].renamed or {}
        return next((old for old, new in renamed.items() if new == name), None)

    def name(self, name: str, value: Value) -> Value:
        """Make a value observable under a name."""
        (value,) = self.own("named", [value])
        if name in self._named and self._named[name].ref != value.ref:
            raise GraphError(
                message(
                    f"two values are named {name!r}",
                    f"the first is {self._named[name]!r}, the second {value!r}",
                    remedy="Give each its own name.",
                )
            )
        self._named[name] = value
        return value

    def loop(
        self,
        step: Callable[..., Any],
        carries: Sequence[Value],
        stacked: Sequence[tuple[Value, int]],
        constants: Sequence[Value],
        length: int,
        over: str | None,
        name: str,
        holders: Sequence[object] = (),
        until: bool = False,
    ) -> list[Value]:
        """Run `step` on `(carries, slices, constants)` `length` times; it returns the carries, then outputs.

        Where nothing is stacked, there are no outputs: a step that returns more carries the first constants as well.
        With `until` it ends before the first turn in which the first carry holds.

        Returns:
          The final carries, then each output with `over` in front.

        Raises:
          CompositionError: when the carries do not come out as they went in.
        """
        self._check_nesting(name)
        check_turns(length, f"`{name}`")
        held = [jax.tree.flatten(self.held(holder)) for holder in holders]
        constants = [*constants, *(leaf for leaves, _ in held for leaf in leaves)]
        operands = self.own(name, [*carries, *(value for value, _ in stacked), *constants])
        body = Trace(self)
        inner = [body.input(f"carry/{i}", v.axes, v.shape, v.dtype) for i, v in enumerate(carries)]
        inner += [body.input(f"slice/{i}", *slice_of(v, axis)) for i, (v, axis) in enumerate(stacked)]
        inner += [body.input(f"constant/{i}", v.axes, v.shape, v.dtype) for i, v in enumerate(constants)]
        plain = len(inner) - sum(len(leaves) for leaves, _ in held)
        given = iter(inner[plain:])
        for holder, (leaves, tree) in zip(holders, held, strict=True):
            body.provide(holder, jax.tree.unflatten(tree, [next(given) for _ in leaves]))
        with recording(body):
            results = list(step(*inner[:plain]))
        outputs = body.own(f"{name}/result", results)
        outputs[: len(carries)] = agreed_carries(carries, outputs[: len(carries)])
        body._is_over = True
        if over is None and len(outputs) > len(carries):
            carries = [*carries, *constants[: len(outputs) - len(carries)]]
            for number in range(len(inner)):
                constant = number - len(carries)
                body._nodes[number].path = f"carry/{number}" if constant < 0 else f"constant/{constant}"
        operands += (self._value(ref) for ref in body._captured)
        check_carries(name, carries, outputs[: len(carries)])
        axes = tuple(axis for _, axis in stacked)
        loop = PendingLoop(body._nodes, body._named, outputs, length, over, len(carries), axes, until)
        types: list[tuple[Names, jax.ShapeDtypeStruct]] = [(v.axes, v.struct) for v in outputs[: len(carries)]]
        for value in outputs[len(carries) :]:
            assert over is not None
            check_distinct(name, (over, *value.axes))
            types.append(((over, *value.axes), jax.ShapeDtypeStruct((length, *value.shape), value.dtype)))
        pending = Pending("loop", tuple(v.ref for v in operands), [], "", loop=loop)
        return self._record(pending, types, name)

    def scope(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Operations recorded inside get paths below `name`; a second scope of the same name gets a number."""
        return self._paths.scope(name)

    def within(self, path: str) -> contextlib.AbstractContextManager[None]:
        """Operations recorded inside get paths below `path`, which other operations may lie below already."""
        return self._paths.within(path)

    # Finishing

    def finish(self, outputs: Sequence[tuple[str, Value]], in_tree: Any, out_tree: Any, name: str) -> Graph:
        """Resolve every name and return the graph, without what nobody can observe; nothing is recorded afterwards.

        Raises:
          GraphError: when an output belongs to another program, or is named as another value.
        """
        for label, value in outputs:
            if value.trace is not self:
                raise GraphError(
                    message(
                        f"`{name}` returns a value of another program, at `{label}`",
                        f"got {value!r}",
                        remedy="Return what this call computes; let a loop's step return what it makes.",
                    )
                )
        axes = list(axes_of(self._nodes))
        found = [find(axis) for axis in axes]
        is_shared = any(isinstance(name, AxisVariable) and name.is_shared for name in found)
        beside = together(self._nodes) if is_shared else ()
        resolve = Resolver({name for name in found if isinstance(name, str)}, axes, beside, self.coined)
        graph = resolved_graph(self._nodes, self._named, outputs, in_tree, out_tree, name, resolve)
        self._is_over = True
        return graph

    @property
    def depth(self) -> int:
        """How many scopes are open, those of the programs around this one included."""
        return self._paths.depth + (0 if self.outer is None else self.outer.depth)

    # Helpers

    def _around(self) -> Iterator[Trace]:
        """This program, and those that it is the body of a loop in."""
        program: Trace | None = self
        while program is not None:
            yield program
            program = program.outer

    def _read_names(self) -> None:
        """Each node is read once: a variable of it that becomes a name later becomes that of another axis."""
        self.taken.update(name for axis in axes_of(self._nodes[self._read :]) if isinstance(name := find(axis), str))
        self._read = len(self._nodes)

    def _check_nesting(self, name: str) -> None:
        if len(list(self._around())) > DEEPEST_LOOPS:
            raise GraphError(
                message(
                    f"loops are nested more than {DEEPEST_LOOPS} deep, at `{name}`",
                    "JAX lowers some forty loops inside each other, and their gradients fewer",
                    remedy="Multiply the lengths of loops that only repeat one another into one.",
                )
            )

    def _record(
        self, pending: Pending, types: Sequence[tuple[Names, jax.ShapeDtypeStruct]], name: str | None = None
    ) -> list[Value]:
        index = len(self._nodes)
        if name is not None:
            pending.path = self._paths.unique(name)
        pending.results = [
            Value(self, Ref(index, output), tuple(names), tuple(struct.shape), struct.dtype)
            for output, (names, struct) in enumerate(types)
        ]
        for names in (*(value.axes for value in pending.results), tuple((pending.bound or {}).values())):
            if names not in self._told_apart:
                self._told_apart.add(names)
                tell_apart(names)
        self._nodes.append(pending)
        return pending.results

    def _value(self, ref: Ref) -> Value:
        return self._nodes[ref.node].results[ref.output]

    def own(self, what: str, values: Sequence[Value]) -> list[Value]:
        """The values in this program, those of the programs around it as constants."""
        check_values(values, what)
        if self._is_over and self.outer is None:
            raise GraphError(
                message(
                    f"`{what}` is given a value of a program that was traced already",
                    f"got {', '.join(map(repr, values))}",
                    "what a program appends to a list or sets somewhere is no array, and is of that one trace",
                    remedy="Return it from the program; to look at a value, use tp.named.",
                )
            )
        for number, value in enumerate(values):
            if self._is_over or not self.is_inside(value.trace):
                raise GraphError(
                    message(
                        f"operand {number} of `{what}` belongs to another program",
                        f"got {value!r}",
                        remedy="Pass it in as an argument of the program; let a loop's step return what it makes.",
                    )
                )
        return [self._own_one(value) for value in values]

    def is_inside(self, other: Trace) -> bool:
        """Whether this program is the other one, or the body of a loop in it."""
        return self is other or (self.outer is not None and self.outer.is_inside(other))

    def _own_one(self, value: Value) -> Value:
        if value.trace is self or self.outer is None:
            return value
        around = self.outer._own_one(value)
        if around.ref not in self._captured:
            name = f"captured/{len(self._captured)}"
            self._captured[around.ref] = self.input(name, around.axes, around.shape, around.dtype)
        return self._captured[around.ref]

    def _rename_some(self, value: Value, names: Mapping[str, str]) -> Value:
        mapping = {old: new for old, new in names.items() if old in value.names and old != new}
        if not mapping:
            return value
        axes = tuple(mapping.get(n, a) if isinstance(n := find(a), str) else a for a in value.axes)
        check_distinct("rename", axes)
        key = ("rename", value.ref, tuple(sorted(mapping.items())))
        if key not in self._same:
            pending = Pending("rename", (value.ref,), [], "", renamed=mapping)
            self._record(pending, [(axes, value.struct)], "rename")
            self._same[key] = len(self._nodes) - 1
        return self._nodes[self._same[key]].results[0]


def _written(shaped: Shaped, operands: Sequence[Value]) -> Any:
    """What an operation computes, where that can change."""
    if not shaped.operation.may_change:
        return None
    # Few kernels read what can change.
    from combinators.graphs.unchanged import written

    return written(shaped.operation, [value.struct for value in operands])
