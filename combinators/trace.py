"""Recording a program: every applied operation becomes a node, equal ones the same node."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import jax

from combinators.binding import Names, bind, check_distinct, local_names, suggest_names
from combinators.carries import check_carries, slice_of
from combinators.errors import GraphError, message
from combinators.graph import DEEPEST_LOOPS, Graph, Ref, prune
from combinators.naming import AxisName, Resolver, find
from combinators.operation import Operation
from combinators.pending import Pending, PendingLoop, resolved_node
from combinators.shaped import Shaped, shape
from combinators.value import Value

# The program whose function runs, for what has no operand to tell it by; every function that records sets it.
_RECORDING: contextvars.ContextVar[Trace | None] = contextvars.ContextVar("recording", default=None)


class Trace:
    """The recording of one program. It lives as long as tracing does; what stays is the `Graph`."""

    def __init__(self, outer: Trace | None = None) -> None:
        # Of a loop's body, the program around it: its values may be used inside, as constants of the loop.
        self.outer = outer
        self._captured: dict[Ref, Value] = {}
        self._is_over = False
        self._nodes: list[Pending] = []
        self._same: dict[Any, int] = {}
        self._scopes: list[str] = []
        self._paths: dict[str, int] = {}
        self._named: dict[str, Value] = {}
        self._held: dict[int, tuple[object, Any]] = {}

    # Recording

    def provide(self, holder: object, values: Any) -> None:
        """Say which values stand for the arrays of an arrow that holds some."""
        self._held[id(holder)] = (holder, values)

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
        operands = self._own(operation.name, operands)
        shaped = shape(operation, tuple(value.struct for value in operands))
        hoisted = self._hoist_renames(shaped, operands)
        if hoisted is not None:
            sources, mapping = hoisted
            result = self.apply(operation, sources, suggests=suggests)
            return jax.tree.map(lambda value: self._rename_some(value, mapping), result)
        bound, names = bind(shaped, [value.axes for value in operands])
        if suggests:
            suggest_names(shaped, [value.axes for value in operands])
        operands_refs = tuple(value.ref for value in operands)
        key = (shaped.operation, operands_refs)
        if key not in self._same:
            pending = Pending("apply", operands_refs, [], "", shaped, bound)
            self._record(pending, list(zip(names, shaped.results, strict=True)), operation.name)
            self._same[key] = len(self._nodes) - 1
        return jax.tree.unflatten(shaped.result_tree, list(self._nodes[self._same[key]].results))

    def rename(self, value: Value, names: Mapping[str, str]) -> Value:
        """The same tensor under other names."""
        (value,) = self._own("rename", [value])
        value.settle(set(names))
        for old, new in names.items():
            if old not in value.names:
                unnamed = any(name is None for name in value.names)
                raise GraphError(
                    message(
                        f"cannot rename `{old}` to `{new}`: the value has no axis `{old}`",
                        f"got {value!r}",
                        remedy="Name the axes first: give the program a signature, or its inputs a tp.TensorType."
                        if unnamed
                        else "Rename one of the axes it has.",
                    )
                )
        pending = self._nodes[value.ref.node]
        if pending.renamed is not None:
            source = self._value(pending.operands[0])
            chained = {old: names.get(new, new) for old, new in pending.renamed.items()}
            chained |= {old: new for old, new in names.items() if old not in pending.renamed.values()}
            return self._rename_some(source, chained)
        return self._rename_some(value, dict(names))

    def renamed_from(self, value: Value, name: str) -> str | None:
        """What an axis of a value was called before it was renamed; None where it was not."""
        renamed = value.trace._nodes[value.ref.node].renamed or {}
        return next((old for old, new in renamed.items() if new == name), None)

    def name(self, name: str, value: Value) -> Value:
        """Make a value observable under a name."""
        (value,) = self._own("named", [value])
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
    ) -> list[Value]:
        """Run `step` on `(carries, slices, constants)` `length` times; it returns the carries, then outputs.

        Where nothing is stacked, there are no outputs: a step that returns more carries the first constants as well.

        Returns:
          The final carries, then each output with `over` in front.

        Raises:
          CompositionError: when the carries do not come out as they went in.
        """
        self._check_nesting(name)
        held = [jax.tree.flatten(self.held(holder)) for holder in holders]
        constants = [*constants, *(leaf for leaves, _ in held for leaf in leaves)]
        operands = self._own(name, [*carries, *(value for value, _ in stacked), *constants])
        body = Trace(self)
        inner = [body.input(f"carry/{i}", v.axes, v.shape, v.dtype) for i, v in enumerate(carries)]
        inner += [body.input(f"slice/{i}", *slice_of(v, axis)) for i, (v, axis) in enumerate(stacked)]
        inner += [body.input(f"constant/{i}", v.axes, v.shape, v.dtype) for i, v in enumerate(constants)]
        plain = len(inner) - sum(len(leaves) for leaves, _ in held)
        given = iter(inner[plain:])
        for holder, (leaves, tree) in zip(holders, held, strict=True):
            body.provide(holder, jax.tree.unflatten(tree, [next(given) for _ in leaves]))
        with body.recording():
            results = list(step(*inner[:plain]))
        outputs = body._own(f"{name}/result", results)
        body._is_over = True
        if over is None and len(outputs) > len(carries):
            carries = [*carries, *constants[: len(outputs) - len(carries)]]
            for number in range(len(inner)):
                constant = number - len(carries)
                body._nodes[number].path = f"carry/{number}" if constant < 0 else f"constant/{constant}"
        operands += (self._value(ref) for ref in body._captured)
        check_carries(name, carries, outputs[: len(carries)])
        loop = PendingLoop(body, outputs, length, over, len(carries), tuple(axis for _, axis in stacked))
        types: list[tuple[Names, jax.ShapeDtypeStruct]] = [(v.axes, v.struct) for v in outputs[: len(carries)]]
        for value in outputs[len(carries) :]:
            assert over is not None
            check_distinct(name, (over, *value.axes))
            types.append(((over, *value.axes), jax.ShapeDtypeStruct((length, *value.shape), value.dtype)))
        pending = Pending("loop", tuple(v.ref for v in operands), [], "", loop=loop)
        return self._record(pending, types, name)

    @contextlib.contextmanager
    def recording(self) -> Generator[None]:
        """Inside, what has no operands belongs to this program."""
        token = _RECORDING.set(self)
        try:
            yield
        finally:
            _RECORDING.reset(token)

    @contextlib.contextmanager
    def scope(self, name: str) -> Generator[None]:
        """Operations recorded inside get paths below `name`; a second scope of the same name gets a number."""
        above = len("/".join([*self._scopes, ""]))
        self._scopes.append(self._unique(name)[above:])
        try:
            yield
        finally:
            self._scopes.pop()

    # Finishing

    def finish(self, outputs: Sequence[tuple[str, Value]], in_tree: Any, out_tree: Any, name: str) -> Graph:
        """Resolve every name and return the graph, without what nobody can observe.

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
        return self.resolved(outputs, in_tree, out_tree, name, self._resolver())

    def resolved(
        self, outputs: Sequence[tuple[str, Value]], in_tree: Any, out_tree: Any, name: str, resolve: Resolver
    ) -> Graph:
        """The graph, with the names that `resolve` gives to variables."""
        inputs = [i for i, pending in enumerate(self._nodes) if pending.kind == "input"]
        others = [i for i, pending in enumerate(self._nodes) if pending.kind != "input"]
        moved = {old: new for new, old in enumerate([*inputs, *others])}
        nodes = tuple(resolved_node(self._nodes[old], moved, resolve) for old in moved)
        observed = tuple((label, Ref(moved[value.ref.node], value.ref.output)) for label, value in outputs)
        named = [(label, Ref(moved[v.ref.node], v.ref.output)) for label, v in self._named.items()]
        labels = dict(observed)
        for label, ref in named:
            if labels.get(label, ref) != ref:
                raise GraphError(
                    message(
                        f"`{name}` names a value {label!r}, which is what its output is called",
                        f"the outputs are {', '.join(labels)}",
                        remedy="Give the value another name with tp.named.",
                    )
                )
        named_all = observed + tuple(pair for pair in named if pair[0] not in labels)
        return prune(Graph(nodes, observed, named_all, in_tree, out_tree, name, resolve.suggested))

    def axes(self) -> Iterator[AxisName]:
        """All names of dimensions, known or not, those in loops too, in the order in which they appeared."""
        for pending in self._nodes:
            for value in pending.results:
                yield from value.axes
            yield from (pending.bound or {}).values()
            if pending.loop is not None:
                yield from pending.loop.body.axes()

    @property
    def depth(self) -> int:
        """How many scopes are open, those of the programs around this one included."""
        return len(self._scopes) + (0 if self.outer is None else self.outer.depth)

    # Helpers

    def _check_nesting(self, name: str) -> None:
        around, loops = self, 1
        while around.outer is not None:
            around, loops = around.outer, loops + 1
        if loops > DEEPEST_LOOPS:
            raise GraphError(
                message(
                    f"loops are nested more than {DEEPEST_LOOPS} deep, at `{name}`",
                    "JAX lowers some forty loops inside each other, and their gradients fewer",
                    remedy="Multiply the lengths of loops that only repeat one another into one.",
                )
            )

    def _resolver(self) -> Resolver:
        axes = list(self.axes())
        return Resolver({found for axis in axes if isinstance(found := find(axis), str)}, axes)

    def _record(
        self, pending: Pending, types: Sequence[tuple[Names, jax.ShapeDtypeStruct]], name: str | None = None
    ) -> list[Value]:
        index = len(self._nodes)
        if name is not None:
            pending.path = self._unique(name)
        pending.results = [
            Value(self, Ref(index, output), tuple(names), tuple(struct.shape), struct.dtype)
            for output, (names, struct) in enumerate(types)
        ]
        self._nodes.append(pending)
        return pending.results

    def _unique(self, name: str) -> str:
        path = "/".join([*self._scopes, name])
        count = self._paths.get(path, 0)
        chosen = path if count == 0 else f"{path}_{count}"
        # Somebody may have called an operation `gelu_1`.
        while count and chosen in self._paths:
            count += 1
            chosen = f"{path}_{count}"
        self._paths[path] = count + 1
        self._paths.setdefault(chosen, 1)
        return chosen

    def _value(self, ref: Ref) -> Value:
        return self._nodes[ref.node].results[ref.output]

    def _own(self, what: str, values: Sequence[Value]) -> list[Value]:
        """The values in this program, those of the programs around it as constants."""
        _check_values(values, what)
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

    def _hoist_renames(self, shaped: Shaped, operands: Sequence[Value]) -> tuple[list[Value], dict[str, str]] | None:
        """Renaming commutes with operations: apply to the unrenamed tensor, so that equal work is shared.

        Only where no other operand carries the old or the new name: then the renaming means the same after it.
        """
        mapping: dict[str, str] = {}
        for value in operands:
            renamed = self._nodes[value.ref.node].renamed
            if renamed is not None:
                if any(mapping.get(old, new) != new for old, new in renamed.items()):
                    return None
                mapping |= renamed
        if not mapping or len(set(mapping.values())) < len(mapping):
            return None
        touched = set(mapping) | set(mapping.values())
        # A name that the operation itself brings must neither meet the old names nor be renamed with them.
        if touched & local_names(shaped):
            return None
        sources: list[Value] = []
        for value in operands:
            renamed = self._nodes[value.ref.node].renamed
            source = value if renamed is None else self._value(self._nodes[value.ref.node].operands[0])
            stays = {name for name in source.names if name not in (renamed or {})}
            if stays & touched or any(name is None for name in source.names):
                return None
            sources.append(source)
        return sources, mapping


def current_trace() -> Trace | None:
    """The program whose function runs right now; None where none does."""
    return _RECORDING.get()


def trace_of(values: Sequence[Any], what: str) -> Trace:
    """The program that the values belong to.

    Raises:
      GraphError: when an operand is not a value of a program.
    """
    _check_values(values, what)
    if not values and (recording := current_trace()) is not None:
        return recording
    if not values:
        raise GraphError(
            message(f"`{what}` has no operand to find its program by", remedy="Pass at least one value of the program.")
        )
    # In the body of a loop values of the program around it may stand first.
    return next((v.trace for v in values if all(v.trace.is_inside(w.trace) for w in values)), values[0].trace)


def _check_values(values: Sequence[Any], what: str) -> None:
    for number, value in enumerate(values):
        if not isinstance(value, Value):
            raise GraphError(
                message(
                    f"operand {number} of `{what}` is not a value of the program",
                    f"got {type(value).__name__}: {value!r:.80}",
                    remedy="Pass arrays as arguments of the program; numbers may stand in arithmetic.",
                )
            )
