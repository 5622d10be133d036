"""Plans: a graph, a mesh, and where every dimension goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jax.sharding import Mesh

from combinators.arguments import read_flag, read_integer
from combinators.errors import MeshError, PlanError, message, spelt
from combinators.frozen import dataclass
from combinators.graphs.evaluate import check_unchanged
from combinators.graphs.graph import Graph
from combinators.kernels.immutable import Immutable
from tapestry_jax import on_request
from tapestry_jax.lowering.compiled import Compiled
from tapestry_jax.lowering.compiler_options import compiler_options
from tapestry_jax.lowering.devices import require_devices, require_running
from tapestry_jax.lowering.transfer import crop, input_shardings, output_shardings, pad, put, take
from tapestry_jax.planning.asked import Asked
from tapestry_jax.planning.derivatives.positions import read_positions
from tapestry_jax.planning.entries.layouts import Named
from tapestry_jax.planning.entries.read import Entries
from tapestry_jax.planning.entries.remat import Remat
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.planned import check_gradients, check_program, planned
from tapestry_jax.planning.proof.prove import prove, prove_boundary
from tapestry_jax.planning.rewrites.carriers import Accumulate
from tapestry_jax.planning.rewrites.platforms import Platforms
from tapestry_jax.planning.scheduling.schedule import Schedule

if TYPE_CHECKING:
    from tapestry_jax.aot.seen import Seen
    from tapestry_jax.exported.specs import PartitionSpecs
    from tapestry_jax.machines.machine import Machine
    from tapestry_jax.memory.predicted import MemoryNeeded
    from tapestry_jax.planning.prediction.collective import Collective
    from tapestry_jax.planning.pricing.cost import Cost
    from tapestry_jax.planning.timeline.timeline import Timeline
    from tapestry_jax.report.diff import Diff, Side
    from tapestry_jax.report.weighed import Weighed
    from tapestry_jax.report.why import Why
    from tapestry_jax.shards.sharded_graph import ShardedGraph


@dataclass(frozen=True, eq=False)
class Plan(Immutable):
    """Where the pieces of a graph run. Made by `tp.plan`.

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
      remat: scopes whose layers the backward pass computes again.
      gap: of a plan that was searched for, the share of its price by which a better plan could be cheaper at most; None
        where that is not known, as of plans by hand and those read from files.
      weighed: of a plan that was searched for, the candidates that were evaluated best beside it, which `show` lists;
        None of other plans, as for `gap`.
      machine: of a plan that was searched for, the one that it was found for, on which it is priced where no other is
        named; None of other plans, as for `gap`.
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
    remat: Remat = ()
    gap: float | None = None
    weighed: Weighed | None = field(default=None, repr=False)
    machine: Machine | None = field(default=None, repr=False)

    @property
    def in_shardings(self) -> Any:
        """`NamedSharding`s in the structure of the arguments, for arrays of true sizes.

        `jax.jit(init, out_shardings=plan.in_shardings[i])` makes them there; what the plan stores in padded pieces is
        made through `plan.pad`.
        """
        return input_shardings(self.schedule, self.mesh)

    @property
    def out_shardings(self) -> Any:
        """`NamedSharding`s in the structure of the result."""
        return output_shardings(self.schedule, self.mesh)

    def partition_specs(self) -> PartitionSpecs:
        """The plan in the words of plain JAX, for a function that stays in `jax.jit` and is partitioned by XLA.

        Returns:
          `PartitionSpec`s of arguments, results and values, logical axis rules as Flax takes them, and a list of what
          the plan does that these cannot say. `jax.jit(f, in_shardings=plan.in_shardings)` has the mesh in it as well.
        """
        return on_request.partition_specs(self.schedule, self.accumulate)

    @property
    def compiler_options(self) -> dict[str, bool]:
        """Options with which the compiler of this machine hides more transfers: empty where none are known.

        JAX takes options where a program is jitted as a whole: `jax.jit(step, compiler_options=plan.compiler_options)`.
        """
        return compiler_options(self.mesh)

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
        return put(self.schedule, require_running(self.mesh), args)

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
        mesh = require_devices(self.mesh)
        return pad(self.schedule, mesh, tree, self._position(argument, "pad"))

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
        mesh = require_devices(self.mesh)
        return crop(self.schedule, mesh, tree, self._position(argument, "crop"))

    def take(self, result: Any) -> Any:
        """Bring a result to the host: NumPy arrays of true sizes in the structure of the result.

        Raises:
          PlanError: when `result` is not what the program returns: other arrays, or other sizes.
        """
        return take(self.schedule, result)

    def compile(self) -> Compiled:
        """One SPMD program with explicit collectives: arrays in, arrays out; differentiable; nests in `jit`.

        What `verify` does not prove is not compiled: a plan that cannot be made right must not run.

        Raises:
          MeshError: when the mesh has no devices.
          PlanError: where the proof fails.
          KernelError: where a kernel reads what has changed since the program was traced.
        """
        mesh = require_devices(self.mesh)
        check_unchanged(self.graph)
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

    def compile_only(
        self,
        mesh: Any = None,
        *,
        grad: bool | int | Sequence[int] = False,
        compiler_options: Mapping[str, Any] | None = None,
    ) -> Seen:
        """Ask the compiler what this plan comes to, without running it: memory, collectives, cycles.

        Args:
          mesh: such as `tp.topology("v5e:2x4", data=2, model=4)`, to plan the same entries for; by default the mesh of
            the plan, whose devices may be any.
          grad: as in `collectives`: False for the program alone, True for values and gradients.
          compiler_options: as `jax.jit` takes them, such as `plan.compiler_options`.

        Returns:
          What the compiler says beside what the plan predicted; `print` shows it as a table.

        Raises:
          MeshError: when the mesh has no devices.
          PlanError: where the plan cannot be proved, was made for another platform, or the compiler refuses it, such as
            for want of memory or of such an option.
        """
        chosen = self if mesh is None else self._on(mesh)
        devices = require_devices(chosen.mesh)
        chosen.verify()
        positions = read_positions(grad, self.graph)
        return on_request.compile_only(chosen.schedule, devices, positions, self.platforms, compiler_options)

    def _on(self, mesh: Any) -> Plan:
        """The same entries on another mesh, which has at least the axes of this one."""
        missing = sorted({*MeshShape.of(self.mesh).names} - {*MeshShape.of(mesh).names})
        if missing:
            raise MeshError(
                message(
                    f"the mesh has no axis `{missing[0]}`, which this plan of `{self.graph.name}` is for",
                    f"planned for {MeshShape.of(self.mesh)}, got {MeshShape.of(mesh)}",
                    remedy="Give a mesh with axes of the same names.",
                )
            )
        return make_plan(self.graph, mesh, asked_of(self))

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
        return on_request.collectives(self.schedule, read_positions(grad, self.graph))

    def cost(self, machine: Any = None, grad: bool | int | Sequence[int] = False) -> Cost:
        """What one run costs on a machine, in seconds, by operation and by collective. Nothing is compiled.

        Args:
          machine: a `tp.machines.Machine`, such as `tp.machines.H100` or what `tp.machines.measure(mesh)` gives; or a
            name, with a shape if need be: `"v5p"`, `"v5e:4x4"`, `"h100:8x8"`. By default the one that the plan was
            searched for, else the one that the devices of the mesh are, here or those of `tp.topology`.
          grad: as in `collectives`: False for the program alone, True for values and gradients.

        Returns:
          A `Cost`, which prints as a table: computing by roofline, transfers by the links they go over, what of them
          is hidden, bubbles, and what is computed or read more than once.

        Raises:
          MeshError: for an unknown machine, or a mesh that does not fill it; without a machine, where the mesh does not
            say which it is.
          PlanError: when a cost is no number.
        """
        positions = read_positions(grad, self.graph)
        return on_request.price(self.schedule, self._machine(machine), positions)

    def timeline(self, machine: Any = None, grad: bool | int | Sequence[int] = False) -> Timeline:
        """A run on a machine, simulated: when devices compute and links are busy. Nothing is compiled.

        Every step takes what `plan.cost` says, in the order of the schedule; a device waits for what is sent to it,
        but for what goes round a ring, which is read in the next turn.

        Args:
          machine: as in `cost`.
          grad: as in `collectives`: False for the program alone, True for values and gradients.

        Returns:
          A `Timeline`, which prints as a chart: lanes for devices (one for each stage of a pipeline) and for the links
          of each mesh axis, events with turns of loops folded, and the bytes of values that are alive over time.

        Raises:
          MeshError: as `cost` does.
          PlanError: when a cost is no number.
        """
        positions = read_positions(grad, self.graph)
        return on_request.simulate(self.schedule, self._machine(machine), positions)

    def why(
        self, path: str, wanted: Mapping[str, Any], machine: Any = None, grad: bool | int | Sequence[int] = False
    ) -> Why:
        """Why an operation is not placed otherwise: the plan with one exception more, planned, proved and priced.

        Args:
          path: of an operation or scope, as `graph.show()` prints them.
          wanted: where its dimensions should go instead, such as `{"heads": "model"}`, as in `ops` of `tp.plan`.
          machine: as in `cost`.
          grad: as in `collectives`: False for the program alone, True for values and gradients.

        Returns:
          A `Why`, which prints: whether the plan is cheaper, or with the exception, or neither, or is so already; or
          why it cannot be. Both prices, and what makes the difference.

        Raises:
          PlanError: for a path or dimension that is not there, or what is no entry.
          MeshError: for a mesh axis that is not there; for a machine as `cost` does.
        """
        positions = read_positions(grad, self.graph)
        parts = self.graph, self.mesh, asked_of(self), self.schedule
        return on_request.why(*parts, path, wanted, self._machine(machine), positions)

    def diff(self, other: Plan, machine: Any = None, grad: bool | int | Sequence[int] = False) -> Diff:
        """What another plan of the same program says otherwise.

        Args:
          other: a plan of an equal graph, on any mesh.
          machine: to price both on, as in `cost`, and to say what memory they need; by default neither is asked.
          grad: as in `collectives`: False for the program alone, True for values and gradients.

        Returns:
          A `Diff`, which prints: what was asked for, where dimensions of operations go, how arguments and results lie,
          what is sent more or less often. It is false where nothing differs.

        Raises:
          PlanError: when it is no plan, or one of another program, with the first operation that differs.
          MeshError: for a machine as `cost` does.
        """
        positions = read_positions(grad, self.graph)
        found = None if machine is None else self._machine(machine)
        return on_request.diff(self._side(positions), _plan_of(other)._side(positions), found, positions)

    def _side(self, grad: bool | int | Sequence[int]) -> Side:
        return on_request.Side(self.graph, asked_of(self), self.schedule, lambda: self.memory(grad).total)

    def explain(self, grad: bool | int | Sequence[int] = False) -> str:
        """A table: for every operation where its dimensions go, FLOPs and bytes per device, and its communication."""
        return on_request.explain(self.graph, self.schedule, read_positions(grad, self.graph))

    def show(
        self,
        path: str | PathLike[str] | None = None,
        machine: Any = None,
        *,
        grad: bool | int | Sequence[int] = False,
        memory: bool = False,
        others: Sequence[Plan] = (),
        open: bool = False,
    ) -> Path:
        """Write the plan as a page for a browser: one file, which asks no network for anything.

        The page draws the graph from left to right, with layouts on its arrows and with what is sent; layers that are
        alike, and scopes, unfold by a click. It lists operations, and of the chosen one its boxes; where the machine is
        known what they cost, and a simulated run.

        Args:
          path: of the file; what is there is replaced at once. By default a new temporary file.
          machine: as in `cost`. Where nothing says it, the page has no prices.
          grad: as in `collectives`: False for the program alone, True for values and gradients.
          memory: whether the page also shows what `memory` finds, for which the program is traced.
          others: plans of the same program to list beside it, with what they say otherwise, such as those that
            `tp.pareto` gives, or the one by hand; candidates of its search (`weighed`) are listed behind them.
          open: whether to show the page in a browser.

        Returns:
          The file.

        Raises:
          MeshError: for an unknown machine, or a mesh that does not fill it.
          PlanError: where the file cannot be written, for a position where the program has no argument, or for others
            that are no plans of the same program.
        """
        memory, open = (
            read_flag(each, f"{name}= of plan.show", PlanError) for name, each in (("memory", memory), ("open", open))
        )
        positions = read_positions(grad, self.graph)
        own, beside = self._side(positions), [other._side(positions) for other in _plans_of(others)]
        priced = self.machine if machine is None else machine
        told = on_request.told_of(own, self.mesh, priced, positions, memory, beside, self.gap, self.weighed)
        return on_request.show_plan(self.graph, self.schedule, path, told, open)

    def _repr_html_(self) -> str:
        """What notebooks show: where the dimensions of every operation go, and what it sends."""
        return on_request.plan_table(self.graph, self.schedule)

    def memory(self, grad: bool | int | Sequence[int] = False) -> MemoryNeeded:
        """How much memory a device needs: arguments, results, and the most that is alive at once in between.

        The program is traced and not compiled; the mesh may be abstract. Compilers lay out and pad, fuse and order by
        their own rules, so that small programs differ (docs/design/scaling.md); nothing is rounded in anybody's favour.

        Args:
          grad: as in `collectives`: False for the program alone, True for values and gradients.

        Returns:
          Bytes of one device, with what is alive at the peak by operation; `print` shows a table.

        Raises:
          PlanError: for a position where the program has no argument.
        """
        return on_request.memory_needed(self.schedule, self.mesh, read_positions(grad, self.graph), self.platforms)

    def verify(self) -> None:
        """Prove that the schedule, which is what lowering reads, computes the program.

        For every device, turn and stage: every index of every operation is computed exactly once; every operation reads
        the value that the program names, and the cells of it that its piece needs; states are merged once, of the same
        piece of all else, in an order that their monoid allows; scans go on from what lies before; every change of
        layout leads from the one layout to the other; arguments and results lie as was asked. The cost does not depend
        on the number of devices, or on sizes.

        Kernels are taken at their word here: what they do with a part is looked at when the program is traced, and when
        the plan is lowered (`KernelError`).

        Raises:
          PlanError: with the operation and the boxes, where one of these does not hold.
        """
        asked, shape = asked_of(self), self.schedule.mesh
        check_program(self.schedule, self.graph, self.mesh, asked)
        prove(self.schedule)
        prove_boundary(self.schedule, asked.input_layouts(self.graph, shape), asked.output_layouts(self.graph, shape))
        check_gradients(self.schedule)

    def shards(self) -> ShardedGraph:
        """The sharded expression graph: this plan written out block by block.

        Returns:
          Blocks with their boxes, what they read and make, and what moves between devices and turns. `print` shows it;
          `shards.verify(graph)` proves it from the boxes alone, and `shards.abstract()` is the graph again.
        """
        return on_request.ShardedGraph.of(self.graph, self.schedule)

    def to_json(self) -> str:
        """Store the plan; it names the graph by its key and the mesh by its shape."""
        return on_request.plan_to_json(self.graph, self.mesh, asked_of(self))

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
        return on_request.plan_from_json(text, graph, mesh, make_plan)

    def _machine(self, machine: Any) -> Machine:
        if machine is not None:
            return on_request.find(machine)
        return on_request.machine_of(self.mesh) if self.machine is None else self.machine

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self.mesh, Mesh):
            raise PlanError(
                message(
                    "a plan for devices cannot be pickled: they are those of this process",
                    remedy="Store it with to_json, and read it beside the mesh: tp.Plan.from_json(text, graph).",
                )
            )
        return super().__reduce__()

    def _position(self, argument: Any, name: str) -> int:
        argument = read_integer(argument, f"argument= of plan.{name}", PlanError)
        count = len(self.graph.in_tree.children())
        if argument not in range(count):
            headline = f"plan.{name} names the argument {argument}, which `{self.graph.name}` does not have"
            told = f"its arguments are 0 to {count - 1}" if count else "it takes no arguments"
            raise PlanError(message(headline, told, remedy="Pass the position of one of them."))
        return argument


def make_plan(graph: Graph, mesh: Any, asked: Asked) -> Plan:
    """The plan of what was asked; how the schedule is found reads aloud in `planning/planned.py`."""
    return plan_of(graph, mesh, asked, planned(graph, mesh, asked))


def plan_of(
    graph: Graph,
    mesh: Any,
    asked: Asked,
    schedule: Schedule,
    gap: float | None = None,
    weighed: Weighed | None = None,
    machine: Machine | None = None,
) -> Plan:
    """The plan whose schedule is known."""
    entries = asked.entries, asked.ops, asked.inputs, asked.outputs
    return Plan(graph, mesh, *entries, schedule, asked.accumulate, asked.platforms, asked.remat, gap, weighed, machine)


def _plan_of(other: Plan) -> Plan:
    """What a plan is compared with.

    Raises:
      PlanError: when it is no plan.
    """
    if not isinstance(other, Plan):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(
            message(
                "a plan differs from plans",
                f"got {type(other).__name__}: {spelt(other)}",
                remedy="Pass a plan of the same graph: plan.diff(tp.plan(graph, mesh, {...})).",
            )
        )
    return other


def _plans_of(others: Sequence[Plan]) -> list[Plan]:
    """What a plan is shown beside.

    Raises:
      PlanError: when it is no sequence, or one of other things than plans.
    """
    if not isinstance(others, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(
            message(
                "plan.show lists other plans in a sequence",
                f"got {type(others).__name__}: {spelt(others)}",
                remedy="Write plan.show('plan.html', others=[other]).",
            )
        )
    for at, other in enumerate(others):
        if not isinstance(other, Plan):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PlanError(
                message(
                    f"plan.show lists other plans, and others[{at}] is none",
                    f"got {type(other).__name__}: {spelt(other)}",
                    remedy="List plans of the same graph, such as tp.plan(graph, mesh, {...}).",
                )
            )
    return list(others)


def asked_of(plan: Plan) -> Asked:
    """What a plan was made of, beside its graph and its mesh."""
    entries = plan.entries, plan.ops, plan.inputs, plan.outputs
    return Asked(*entries, plan.accumulate, plan.platforms, plan.remat)
