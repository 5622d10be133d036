"""What few programs ask of a plan, loaded by the first that does: every program pays for what `tapestry_jax` imports.

A method of `Plan` whose answer lies in one of these rooms calls it from here. What every plan needs is imported by
`plan.py` itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tapestry_jax.aot.compile_only import compile_only as compile_only
    from tapestry_jax.exported.partition_specs import partition_specs as partition_specs
    from tapestry_jax.machines.known import find as find
    from tapestry_jax.machines.of_mesh import machine_of as machine_of
    from tapestry_jax.memory.predicted import memory_needed as memory_needed
    from tapestry_jax.plan_json import plan_from_json as plan_from_json
    from tapestry_jax.plan_json import plan_to_json as plan_to_json
    from tapestry_jax.planning.prediction.collectives import collectives as collectives
    from tapestry_jax.planning.pricing.priced import price as price
    from tapestry_jax.planning.timeline.simulate import simulate as simulate
    from tapestry_jax.report.diff import Side as Side
    from tapestry_jax.report.diff import diff as diff
    from tapestry_jax.report.explain import explain as explain
    from tapestry_jax.report.page.notebook import plan_table as plan_table
    from tapestry_jax.report.page.shown import show_plan as show_plan
    from tapestry_jax.report.page.shown import told_of as told_of
    from tapestry_jax.report.why import why as why
    from tapestry_jax.shards.sharded_graph import ShardedGraph as ShardedGraph
else:
    from combinators.lazy import lazily

    PLACES = {
        "ShardedGraph": "tapestry_jax.shards.sharded_graph:ShardedGraph",
        "Side": "tapestry_jax.report.diff:Side",
        "collectives": "tapestry_jax.planning.prediction.collectives:collectives",
        "compile_only": "tapestry_jax.aot.compile_only:compile_only",
        "diff": "tapestry_jax.report.diff:diff",
        "explain": "tapestry_jax.report.explain:explain",
        "find": "tapestry_jax.machines.known:find",
        "machine_of": "tapestry_jax.machines.of_mesh:machine_of",
        "memory_needed": "tapestry_jax.memory.predicted:memory_needed",
        "partition_specs": "tapestry_jax.exported.partition_specs:partition_specs",
        "plan_from_json": "tapestry_jax.plan_json:plan_from_json",
        "plan_table": "tapestry_jax.report.page.notebook:plan_table",
        "plan_to_json": "tapestry_jax.plan_json:plan_to_json",
        "price": "tapestry_jax.planning.pricing.priced:price",
        "show_plan": "tapestry_jax.report.page.shown:show_plan",
        "simulate": "tapestry_jax.planning.timeline.simulate:simulate",
        "told_of": "tapestry_jax.report.page.shown:told_of",
        "why": "tapestry_jax.report.why:why",
    }
    __getattr__, __dir__ = lazily(__name__, PLACES)
