"""The laws of plans: planned is unplanned, in values and in gradients, block by block, nested and repeated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from laws.law import Law, drawn
from laws.quickly import quick_options
from laws.subjects.plan import PlanSubject, is_inexact, outputs, slopes

DESIGN = "docs/design: by the law every plan computes the same result"


def values(s: PlanSubject, arguments: Any) -> tuple[Any, Any]:
    """Run planned and unplanned."""
    return outputs(s.planned, arguments), outputs(s.at_once, arguments)


def blocks(s: PlanSubject, arguments: Any) -> tuple[Any, Any]:
    """Run the plan's blocks one by one in NumPy, and the program unplanned."""
    return outputs(s.block_by_block, arguments), outputs(s.at_once, arguments)


def gradients(s: PlanSubject, arguments: Any, cotangents: Any) -> tuple[Any, Any]:
    """Differentiate planned and unplanned."""
    # One program each: differentiated step by step, JAX would compile what is kept and what is made of it apart.
    planned, unplanned = (
        _compiled(s, f"slopes of {run.__name__}", partial(slopes, run)) for run in (s.planned, s.unplanned)
    )
    return planned(arguments, cotangents), unplanned(arguments, cotangents)


def nesting(s: PlanSubject, arguments: Any) -> tuple[Any, Any]:
    """Run the plan inside of `jit`."""
    return _compiled(s, "nested", s.planned)(arguments), s.planned(arguments)


def retry(s: PlanSubject, arguments: Any) -> tuple[Any, Any]:
    """Run the plan twice."""
    return s.planned(arguments), s.planned(arguments)


def mapping(s: PlanSubject, arguments: Any) -> tuple[Any, Any]:
    """Map the plan over two arguments, the second one turned around."""
    turned = [np.flip(np.asarray(leaf)) for leaf in arguments]
    both = jax.vmap(s.planned)([np.stack([x, y]) for x, y in zip(arguments, turned, strict=True)])
    each = [s.planned(arguments), s.planned(turned)]
    return [[leaf[i] for leaf in both] for i in (0, 1)], each


def blocking(s: PlanSubject, arguments: Any) -> tuple[Any, Any]:
    """Cut the arguments into the plan's blocks, and put the blocks of the result together."""
    plan: Any = s.plan
    blocks = plan.put(*jax.tree.unflatten(s.graph.in_tree, list(arguments)))
    return jax.tree.leaves(plan.take(plan.compile()(*blocks))), s.planned(arguments)


def streamed(s: PlanSubject, arguments: Any) -> tuple[Any, Any]:
    """Let the host turn the plan's loops over chunks, and run the program unplanned."""
    return outputs(s.as_stream.run, arguments), outputs(s.at_once, arguments)


def clustered(s: PlanSubject, arguments: Any) -> tuple[Any, Any]:
    """Let workers turn the plan's chunks, each on one device, and run the program unplanned."""
    return outputs(s.as_stream.run_on_workers, arguments), outputs(s.at_once, arguments)


def _compiled(s: PlanSubject, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A program that runs a few times."""
    return s.cache.setdefault(name, jax.jit(function, compiler_options=quick_options()))


MOST_BLOCKS = 2**12
"""That are run one by one: about a second of them."""


def _few_blocks(s: PlanSubject) -> str | None:
    if not callable(getattr(s.plan, "shards", None)):
        return f"`{s.name}` has no shards"
    count = s.shards.count()
    return None if count <= MOST_BLOCKS else f"`{s.name}` has {count} blocks, more than {MOST_BLOCKS}"


def _blocks(s: PlanSubject) -> str | None:
    fits = callable(getattr(s.plan, "put", None)) and callable(getattr(s.plan, "take", None))
    return None if fits else f"`{s.name}` has no put and take"


def _streams(s: PlanSubject) -> str | None:
    return s.as_stream.why_not()


def _has_workers(s: PlanSubject) -> str | None:
    return s.as_stream.why_not_on_workers()


def _differentiable(s: PlanSubject) -> str | None:
    if not any(is_inexact(kind) for kind in s.inputs):
        return f"`{s.name}` has no floating input"
    return None if any(is_inexact(kind) for kind in s.outputs) else f"`{s.name}` has no floating output"


_ARGS = drawn("arguments", "args")

LAWS = (
    Law("plan.values", "run(args) ~ graph(args)", DESIGN, values, _ARGS, eager=True),
    Law("plan.blocks", "shards().run(args) ~ graph(args)", DESIGN, blocks, _ARGS, _few_blocks, eager=True),
    Law(
        "plan.gradients",
        "d <cotangents, run(args)> ~ d <cotangents, graph(args)>",
        DESIGN,
        gradients,
        _ARGS + drawn("cotangents", "cotangents"),
        _differentiable,
        depth=3,
        eager=True,
    ),
    Law("plan.nesting", "jit(run)(args) ~ run(args)", "a compiled plan nests in jit", nesting, _ARGS, eager=True),
    Law(
        "plan.retry",
        "run(args), again ~ run(args)",
        "a retried block is bitwise the same",
        retry,
        _ARGS,
        judged="bits",
        eager=True,
    ),
    Law(
        "plan.mapping",
        "vmap(run)([args, others]) ~ [run(args), run(others)]",
        "JAX: transformations keep the meaning of pure functions",
        mapping,
        _ARGS,
        eager=True,
    ),
    Law(
        "plan.blocking",
        "take(blocks of run(put(args))) ~ run(args)",
        "unblock after block is the identity",
        blocking,
        _ARGS,
        _blocks,
        eager=True,
    ),
    Law("plan.streamed", "stream(args) ~ graph(args)", DESIGN, streamed, _ARGS, _streams, eager=True),
    Law("plan.clustered", "stream(args) on workers ~ graph(args)", DESIGN, clustered, _ARGS, _has_workers, eager=True),
)
