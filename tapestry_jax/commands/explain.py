"""What `tapestry explain PLAN` does."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from combinators.graphs.graph import Graph
from combinators.graphs.walk import operations
from tapestry_jax.commands.planned import chosen_plan, graph_alone, plan_words
from tapestry_jax.plan import Plan
from tapestry_jax.planning.prediction.alive import alive_at_once
from tapestry_jax.report.placed import placed, stored


def words(parser: argparse.ArgumentParser) -> None:
    """The words of `tapestry explain`."""
    plan_words(
        parser,
        "A table: for every operation where its dimensions go, FLOPs and bytes of a device, and what it sends; for\n"
        "every argument how it is stored; and what is alive at once. Of a graph alone: its operations, with the\n"
        "paths and dimensions that a plan may name. Exit status 0; 2 where there is no plan to show.",
    )


def run(chosen: argparse.Namespace, *, is_process: bool) -> int:
    """Run `tapestry explain`.

    Raises:
      TapestryError: when the plan cannot be read.
    """
    del is_process
    graph = graph_alone(chosen)
    if graph is not None:
        sys.stdout.write(f"{_graph_json(graph) if chosen.json else graph.show()}\n")
        return 0
    plan = chosen_plan(chosen)
    sys.stdout.write(f"{_json(plan, grad=chosen.grad) if chosen.json else plan.explain(chosen.grad)}\n")
    return 0


def _graph_json(graph: Graph) -> str:
    found = [{"path": place.path, "dimensions": [name for _, name in node.names]} for place, node in operations(graph)]
    types = {node.name: str(node.results[0]) for node in graph.inputs}
    outputs = {name: str(graph.type_of(ref)) for name, ref in graph.outputs}
    about = {"explain": 1, "name": graph.name, "key": graph.key}
    return json.dumps({**about, "arguments": types, "results": outputs, "operations": found}, indent=1)


def _json(plan: Plan, *, grad: bool) -> str:
    lies = [{"what": what, "name": name, "layout": layout} for (what, name), layout in stored(plan.schedule).items()]
    operations: dict[str, dict[str, str]] = {}
    for (path, dim), where in placed(plan.schedule).items():
        operations.setdefault(path, {})[dim] = where
    return json.dumps(
        {
            "explain": 1,
            "name": plan.graph.name,
            "mesh": dict(plan.schedule.mesh.axes),
            "gradients": grad,
            "stored": lies,
            "operations": [{"path": path, "dimensions": dims} for path, dims in operations.items()],
            "collectives": [dataclasses.asdict(each) for each in plan.collectives(grad)],
            "alive": alive_at_once(plan.schedule, grad),
        },
        indent=1,
    )
