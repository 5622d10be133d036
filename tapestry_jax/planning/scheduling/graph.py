"""From a graph and placements to a schedule: pure data in, pure data out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply, Input, Ref
from tapestry_jax.planning.entries.placement import Placer
from tapestry_jax.planning.geometry.layout import Layout, true_layout
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.time_axis import spread
from tapestry_jax.planning.scheduling.demands import Demands
from tapestry_jax.planning.scheduling.frame import Frame
from tapestry_jax.planning.scheduling.operations import schedule_operation
from tapestry_jax.planning.scheduling.regions import Group, Item
from tapestry_jax.planning.scheduling.repetitions import schedule_pipeline, schedule_repetition
from tapestry_jax.planning.scheduling.schedule import Schedule
from tapestry_jax.planning.scheduling.time_loops import schedule_region


def demanded(
    graph: Graph, mesh: MeshShape, placer: Placer, inputs: Mapping[int, Layout], outputs: Mapping[int, Layout]
) -> Demands:
    """How all operations are cut: with the layouts of inputs and outputs all that a schedule in space depends on.

    Args:
      graph: the program.
      mesh: the shape of the mesh.
      placer: says where the dimensions of each operation go.
      inputs: layouts of inputs by position; the others come as their first user wants them.
      outputs: layouts of outputs by position; the others leave as they are produced.

    Raises:
      PlanError: where a placement cannot hold.
    """
    demands = Demands(graph, mesh, placer, "")
    demands.take_free(inputs, outputs)
    return demands


def scheduled(demands: Demands, inputs: Mapping[int, Layout], outputs: Mapping[int, Layout]) -> Schedule:
    """Write a graph out as the steps of one device.

    Args:
      demands: how its operations are cut.
      inputs: as above.
      outputs: as above.

    Raises:
      PlanError: where a placement cannot hold.
    """
    return _Scheduler(demands).run(inputs, outputs)


class _Scheduler:
    """One pass over the operations of one graph, loop by loop; values get slots."""

    def __init__(self, demands: Demands) -> None:
        self._demands, self._graph, self._prefix = demands, demands.graph, demands.prefix

    def run(
        self,
        inputs: Mapping[int, Layout],
        outputs: Mapping[int, Layout],
        opened: tuple[str, ...] = (),
        varying: Mapping[int, frozenset[str]] | None = None,
        stages: frozenset[str] = frozenset(),
    ) -> Schedule:
        demands, frame = self._demands, Frame(self._graph, self._demands.mesh, opened, stages=stages)
        given: list[int] = []
        for index, node in enumerate(self._graph.nodes):
            if isinstance(node, Input):
                first = [
                    layout if self._prefix else layout.in_blocks for layout in demands.wanted(Ref(index, 0), opened)
                ]
                read = first[0] if first else Layout.whole(node.results[0].ndim)
                axes = (varying or {}).get(len(given))
                # Arrays that users hold have true shapes.
                true = read if self._prefix else true_layout(read, node.results[0].shape, frame.mesh)
                given.append(frame.store(Ref(index, 0), inputs.get(len(given), true), axes))
                if len(given) - 1 not in inputs and true != read:
                    frame.enter_program(Ref(index, 0), read, f"input {node.name}")
                held = demands.held.get(len(given) - 1)
                if held is not None:
                    path = f"{self._prefix}{node.name}"
                    frame.home[Ref(index, 0)] = frame.convert(Ref(index, 0), held, spread(held.axes), path)
        self._run_items(demands.arranged(opened), frame, outputs)
        results: list[int] = []
        for position, (name, output) in enumerate(self._graph.outputs):
            ref = demands.source(output)
            home = frame.layout_of(ref).stored(self._graph.type_of(ref).shape, frame.mesh)
            # Arguments and results keep the order of their cells; inside, stripes stay what they are.
            true = home if self._prefix else true_layout(home.in_blocks, self._graph.type_of(ref).shape, frame.mesh)
            layout = outputs.get(position, true)
            results.append(frame.convert(ref, layout, spread(layout.axes), f"{self._prefix}output {name}"))
        return frame.schedule(tuple(given), tuple(results))

    def _run_items(self, items: Iterable[Item], frame: Frame, outputs: Mapping[int, Layout]) -> None:
        for item in items:
            if isinstance(item, Group):
                index = item.items[0]
                if isinstance(index, int) and index in self._demands.stages:
                    schedule_pipeline(self._demands, index, item, frame, _run_body)
                else:
                    schedule_region(self._demands, item, frame, outputs, self._run_items)
            elif isinstance(self._graph.nodes[item], Apply):
                schedule_operation(self._demands, item, frame, outputs)
            else:
                schedule_repetition(self._demands, item, frame, _run_body)


def _run_body(
    demands: Demands,
    inputs: Mapping[int, Layout],
    outputs: Mapping[int, Layout],
    opened: tuple[str, ...],
    varying: Mapping[int, frozenset[str]],
    stages: frozenset[str],
) -> Schedule:
    return _Scheduler(demands).run(inputs, outputs, opened, varying, stages)
