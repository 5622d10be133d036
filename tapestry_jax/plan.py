"""Plans: a graph, a mesh, and where every dimension goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from combinators.arguments import is_whole, read_integer, read_name
from combinators.errors import PlanError, message
from combinators.graph import Graph
from combinators.immutable import Immutable
from combinators.tensor_type import keys_again, words_of
from tapestry_jax.lowering.boundary import cropped, padded, placed, sharding
from tapestry_jax.lowering.compiled import Compiled, planned_arguments, require_devices
from tapestry_jax.planning.carriers import Accumulate, carried, read_accumulate
from tapestry_jax.planning.collectives import Collective, collectives
from tapestry_jax.planning.deepen import deepened
from tapestry_jax.planning.entries import Entries, check_placed, read_entries
from tapestry_jax.planning.layouts import Named, place_layouts, read_layouts
from tapestry_jax.planning.mesh_shape import MeshShape
from tapestry_jax.planning.placement import Placer
from tapestry_jax.planning.platforms import Platforms, chosen, platforms_of, read_platforms
from tapestry_jax.planning.proof.prove import prove
from tapestry_jax.planning.regather import regathered
from tapestry_jax.planning.schedule import Schedule, Slot
from tapestry_jax.planning.scheduler import schedule_graph


@dataclass(frozen=True, eq=False)
class Plan(Immutable):
    """Where the pieces of a graph run. Made by `plan`.

    Attributes:
      graph: the program.
      mesh: the mesh, with devices or abstract.
      entries: dimension and mesh axes, for all operations.
      ops: exceptions by path.
      inputs: layouts asked for, by name of the input.
      outputs: layouts asked for, by name of the output.
      schedule: the steps of one device; its graph carries folds as `accumulate` says.
      accumulate: dtypes in which folds are carried, by scope.
      platforms: what it is lowered for; empty for the platform of the mesh.
    """

    graph: Graph = field(repr=False)
    mesh: Any
    entries: Entries
    ops: tuple[tuple[str, Entries], ...]
    inputs: Named
    outputs: Named
    schedule: Schedule = field(repr=False)
    accumulate: Accumulate = ()
    platforms: Platforms = ()

    @property
    def in_shardings(self) -> Any:
        """`NamedSharding`s in the structure of the arguments, for arrays of true sizes.

        `jax.jit(init, out_shardings=plan.in_shardings[i])` makes them there; what the plan stores in padded pieces is
        made through `plan.pad`.
        """
        return self._tree(self.graph.in_tree, [self._sharding(slot) for slot in self._slots(self.schedule.inputs)])

    @property
    def out_shardings(self) -> Any:
        """`NamedSharding`s in the structure of the result."""
        return self._tree(
            self.graph.out_tree, [sharding(slot.layout, self.mesh) for slot in self._slots(self.schedule.outputs)]
        )

    def put(self, *args: Any) -> tuple[Any, ...]:
        """Bring arguments onto the devices in the planned layouts.

        Args:
          args: arrays of their true sizes, or as they come out of it, in the structure of the program's arguments.

        Returns:
          The arguments in the same structure; global arrays of their true sizes. What the plan stores in padded pieces
          (`tp.padded`) is padded by copies of the last row.

        Raises:
          SignatureError: for wrong ranks, sizes or dtypes.
          MeshError: when the mesh has no devices.
        """
        mesh = require_devices(self.mesh)
        leaves = planned_arguments(self.schedule, args)
        slots = self._slots(self.schedule.inputs)
        given, structure = jax.tree.flatten(tuple(args))
        moved = [placed(leaf, slot, mesh) for leaf, slot in zip(leaves, slots, strict=True)]
        # Random keys stay keys, so that a module's state may be put back into it.
        return jax.tree.unflatten(structure, list(map(keys_again, moved, given)))

    def pad(self, tree: Any, argument: int = 0) -> Any:
        """What the plan stores in padded pieces (`tp.padded`), padded: an argument, or what has its structure.

        Args:
          tree: arrays of true sizes in the structure of the argument, such as parameters or their moments. It works
            inside `jit` and can be differentiated.
          argument: the position of the argument among those of the program.

        Returns:
          The same structure, padded by copies of the last row; all else as it is.

        Raises:
          PlanError: for another structure or other sizes, or when there is no such argument.
          MeshError: when the mesh has no devices.
        """
        return self._stored(tree, argument, "pad", padded)

    def crop(self, tree: Any, argument: int = 0) -> Any:
        """The same arrays without their padding, in true sizes: what belongs into checkpoints and norms.

        Args:
          tree: arrays in the structure of the argument, as `plan.pad` gives them. It works inside `jit` and can be
            differentiated.
          argument: the position of the argument among those of the program.

        Returns:
          The same structure in true sizes; what was padded lies cut as far as that divides, and else whole.

        Raises:
          PlanError: for another structure or other sizes, or when there is no such argument.
          MeshError: when the mesh has no devices.
        """
        return self._stored(tree, argument, "crop", cropped)

    def _stored(self, tree: Any, argument: int, name: str, move: Any) -> Any:
        mesh = require_devices(self.mesh)
        argument = read_integer(argument, f"argument= of plan.{name}", PlanError)
        self._positions(argument)
        numbers = jax.tree.unflatten(self.graph.in_tree, list(self.schedule.inputs))
        slots = self._slots(jax.tree.leaves(numbers[argument]))
        leaves, structure = jax.tree.flatten(tree)
        true = [slot.type.shape for slot in slots]
        stored = [slot.layout.padded_shape(slot.type.shape, self.schedule.mesh) for slot in slots]
        expected, found = (true if name == "pad" else stored), [np.shape(words_of(leaf)) for leaf in leaves]
        if found != expected:
            wrong = [f"expected {a}, got {b}" for a, b in zip(expected, found, strict=False) if a != b]
            raise PlanError(
                message(
                    f"plan.{name} was given other arrays than the argument {argument} of `{self.graph.name}` has",
                    f"it has {len(expected)}, got {len(found)}",
                    *wrong[:4],
                    remedy="Pass what has the structure of that argument, or name another: argument=1.",
                )
            )
        moved = [
            leaf if a == b else move(leaf, slot, mesh)
            for leaf, slot, a, b in zip(leaves, slots, true, stored, strict=True)
        ]
        return jax.tree.unflatten(structure, moved)

    def take(self, result: Any) -> Any:
        """Bring a result to the host: NumPy arrays of true sizes in the structure of the result.

        Raises:
          PlanError: when `result` is not what the program returns: other arrays, or other sizes.
        """
        leaves, tree = jax.tree.flatten(result)
        slots = self._slots(self.schedule.outputs)
        if len(leaves) != len(slots):
            raise PlanError(
                message(
                    f"plan.take was given {len(leaves)} arrays; the program returns {len(slots)}",
                    remedy="Pass what plan.compile()(...) returned.",
                )
            )
        wrong: list[str] = []
        for (name, _), leaf, slot in zip(self.graph.outputs, leaves, slots, strict=True):
            stored = slot.layout.padded_shape(slot.type.shape, self.schedule.mesh)
            if np.shape(leaf) != stored:
                also = f" padded to {stored}" if stored != slot.type.shape else ""
                wrong.append(f"{name}: expected {slot.type}{also}, got shape {np.shape(leaf)}")
        if wrong:
            raise PlanError(
                message(
                    "plan.take was given other sizes than the program returns",
                    *wrong,
                    remedy="Pass what plan.compile()(...) returned.",
                )
            )
        true = [tuple(map(slice, slot.type.shape)) for slot in slots]
        return jax.tree.unflatten(tree, [np.asarray(leaf)[box] for leaf, box in zip(leaves, true, strict=True)])

    def compile(self) -> Compiled:
        """One SPMD program with explicit collectives: arrays in, arrays out; differentiable; nests in `jit`.

        What `verify` does not prove is not compiled: a plan that cannot be made right must not run.

        Raises:
          MeshError: when the mesh has no devices.
          PlanError: where the proof fails.
        """
        mesh = require_devices(self.mesh)
        try:
            self.verify()
        except PlanError as error:
            raise PlanError(
                message(
                    f"this plan of `{self.graph.name}` is not compiled: it cannot be proved to compute the program",
                    *str(error).splitlines()[:-1],
                    remedy="Place these dimensions otherwise, and report it: planning should have refused this.",
                )
            ) from error
        return Compiled(self.schedule, mesh)

    def collectives(self, grad: bool | int | Sequence[int] = False) -> tuple[Collective, ...]:
        """The collectives that the compiled program runs.

        Args:
          grad: with True those of `value_and_grad` by every floating argument as well; or by the arguments at these
            positions.

        Returns:
          Kind, mesh axes, bytes per device, cause and count of each, with inputs and outputs in the planned layouts.

        Raises:
          PlanError: for a position where the program has no argument.
        """
        return collectives(self.schedule, self._positions(grad))

    def explain(self, grad: bool | int | Sequence[int] = False) -> str:
        """A table: for every operation where its dimensions go, FLOPs and bytes per device, and its communication."""
        from tapestry_jax.report.explain import explain

        return explain(self.graph, self.schedule, self._positions(grad))

    def verify(self) -> None:
        """Prove that the schedule, which is what lowering reads, computes the program.

        For every device, turn and stage: every index of every operation is computed exactly once; every operation reads
        the value that the program names, and the cells of it that its piece needs; states are merged once, of the same
        piece of all else, in an order that their monoid allows; scans go on from what lies before; every change of
        layout leads from the one layout to the other. The cost does not depend on the number of devices, or on sizes.

        Raises:
          PlanError: with the operation and the boxes, where one of these does not hold.
        """
        prove(self.schedule)

    def to_json(self) -> str:
        """Store the plan; it names the graph by its key and the mesh by its shape."""
        from tapestry_jax.plan_json import plan_to_json

        return plan_to_json(self)

    @staticmethod
    def from_json(text: str, graph: Graph, mesh: Any = None) -> Plan:
        """Read a plan back for its graph.

        Args:
          text: what `to_json` gave.
          graph: the graph it was made for.
          mesh: by default one of the stored shape, abstract where there are not enough devices.

        Raises:
          FormatError: when the text is truncated or edited, or belongs to another graph.
        """
        from tapestry_jax.plan_json import plan_from_json

        return plan_from_json(text, graph, mesh)

    def _positions(self, grad: Any) -> bool | int | tuple[int, ...]:
        """What to take gradients by, in Python's numbers."""
        if isinstance(grad, bool | np.bool_):
            return bool(grad)
        count = len(self.graph.in_tree.children())
        positions: Any = grad if isinstance(grad, tuple | list) else (grad,)
        wrong = [each for each in positions if not is_whole(each) or each not in range(count)]
        if wrong:
            raise PlanError(
                message(
                    f"grad names the argument {wrong[0]!r}, which `{self.graph.name}` does not have",
                    f"its arguments are 0 to {count - 1}" if count else "it takes no arguments",
                    remedy="Give positions of arguments, or True for all of them.",
                )
            )
        return tuple(int(each) for each in positions) if isinstance(grad, tuple | list) else int(grad)

    def _sharding(self, slot: Slot) -> NamedSharding:
        # What lies whole may be the words of random keys: typed keys have an axis less, and take no more names.
        if slot.type.dtype == np.uint32 and not any(slot.layout.cuts):
            return NamedSharding(self.mesh, PartitionSpec())
        return sharding(slot.layout, self.mesh)

    def _slots(self, numbers: Sequence[int]) -> list[Slot]:
        return [self.schedule.slots[number] for number in numbers]

    def _tree(self, tree: Any, leaves: list[Any]) -> Any:
        return jax.tree.unflatten(tree, leaves)


def plan(
    graph: Graph,
    mesh: Any,
    entries: Mapping[str, Any] | None = None,
    *,
    ops: Mapping[str, Mapping[str, Any]] | None = None,
    inputs: Mapping[str, Mapping[str, Any]] | None = None,
    outputs: Mapping[str, Mapping[str, Any]] | None = None,
    accumulate: Any = None,
    platforms: Any = None,
) -> Plan:
    """Plan a graph by hand.

    Args:
      graph: from `tp.trace`.
      mesh: a `jax.sharding.Mesh`, such as `tp.mesh(data=2, model=4)`; an `AbstractMesh` plans without devices.
      entries: dimension name to mesh axis, tuple of mesh axes (outermost first) or None. An entry applies to every
        operation that has the dimension and can cut it. Behind mesh axes, or alone, stand `tp.chunks(n)` (a loop on the
        device), `tp.ring(axis)` (pieces that go round a mesh axis) and `tp.halo(depth=n)` (one exchange for `n` turns).
        A mesh axis for the dimension along which `tp.stack` takes its layers makes them stages of a pipeline, where
        some dimension flows through them in chunks.
      ops: exceptions by path of an operation or scope; the longest path that fits wins.
      inputs: layouts of inputs by name, such as `{"x": {"batch": "data"}}`; by default as their first user wants them.
        An axis that its mesh axes do not divide is stored over as many of them as do, else whole, and sliced inside;
        `tp.padded("data")` stores it in padded pieces. `tp.fsdp` chooses layouts for parameters.
      outputs: layouts of outputs by name; by default as they are produced, uneven axes gathered as far.
      accumulate: a float dtype in which folds and scans are carried where their states are narrower, such as
        `jnp.float32` for a bfloat16 program: partial results are made, sent and merged in it, and rounded once at the
        end, to the dtypes that the program gives them. Or a mapping from paths or scopes to such dtypes (None leaves
        a fold as it is, `""` is the whole program); the longest path that fits wins.
      platforms: what the program will be lowered for, where that is not the platform of the mesh: `"cuda"` plans for
        export on a CPU. It chooses among kernels for platforms (`tp.Dense`); with several platforms the program holds
        the kernels of each.

    Returns:
      The plan. Nothing has run.

    Raises:
      PlanError: for unknown dimensions or paths, a mesh axis used twice in an operation, an entry that cuts nothing, a
        halo that no loop can have, a layout asked for that does not divide, or a carrier that is no float or narrower
        than what it carries.
      MeshError: for an unknown mesh axis.
    """
    if not isinstance(graph, Graph):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(
            message(
                "only graphs can be planned",
                f"got {type(graph).__name__}: {graph!r:.80}",
                remedy="Trace the program first: tp.plan(tp.trace(f, *specs), mesh, {...}).",
            )
        )
    shape = MeshShape.of(mesh)
    listed = read_entries({} if entries is None else entries, shape, "the plan")
    excepted = _read_ops(ops, shape)
    asked, wanted = read_layouts(inputs, shape, "inputs"), read_layouts(outputs, shape, "outputs")
    return make_plan(
        graph, mesh, listed, excepted, asked, wanted, read_accumulate(accumulate), read_platforms(platforms)
    )


def make_plan(
    graph: Graph,
    mesh: Any,
    entries: Entries,
    ops: tuple[tuple[str, Entries], ...],
    inputs: Named,
    outputs: Named,
    accumulate: Accumulate = (),
    platforms: Platforms = (),
) -> Plan:
    """Build a plan from entries that were read already."""
    shape = MeshShape.of(mesh)
    check_placed(entries, "the plan")
    for path, excepted in ops:
        check_placed(excepted, f"ops[{path!r}]")
    placer = Placer(shape, entries, ops)
    given = {node.name: (i, node.results[0]) for i, node in enumerate(graph.inputs)}
    made = {name: (i, graph.type_of(ref)) for i, (name, ref) in enumerate(graph.outputs)}
    schedule = regathered(
        schedule_graph(
            deepened(chosen(carried(graph, accumulate), platforms or platforms_of(mesh)), placer),
            shape,
            placer,
            place_layouts(inputs, given, shape, "inputs"),
            place_layouts(outputs, made, shape, "outputs"),
        )
    )
    placer.check_all_used(graph)
    return Plan(graph, mesh, entries, ops, inputs, outputs, schedule, accumulate, platforms)


def _read_ops(ops: Any, shape: MeshShape) -> tuple[tuple[str, Entries], ...]:
    if ops is None:
        return ()
    if not isinstance(ops, Mapping):
        raise PlanError(
            message(
                "ops is a mapping from paths to entries",
                f"got {type(ops).__name__}: {ops!r:.80}",
                remedy='Write ops={"decoder/3/attention": {"heads": None}}.',
            )
        )
    paths = [read_name(path, "a path in ops=", PlanError) for path in ops]
    known: Any = list(ops.values())
    return tuple((path, read_entries(entry, shape, f"ops[{path!r}]")) for path, entry in zip(paths, known, strict=True))
