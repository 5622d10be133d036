"""What users hold their plans to: how often the compiled program may communicate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from jax.sharding import Mesh

from combinators.errors import PlanError, message, spelt
from tapestry_jax.hlo.collectives import compiled_collectives
from tapestry_jax.lowering.pinned import lower_pinned
from tapestry_jax.plan import Plan

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


def assert_collectives(plan: Plan, *, at_most: Mapping[str, int], grad: bool | int | Sequence[int] = False) -> None:
    """Hold a plan to a number of collectives, both as predicted and, where the mesh has devices, as compiled.

    Args:
      plan: the plan.
      at_most: kind to the number of executions that are allowed, such as `{"all-gather": 0}`. Kinds are `all-reduce`,
        `all-gather`, `reduce-scatter`, `all-to-all` and `collective-permute`; those that are not named are free.
      grad: whether the gradient counts too, as in `Plan.collectives`.

    Raises:
      PlanError: with every collective of a kind that there is too much of, and the operation that causes it.

    Example:
      >>> import jax, tapestry_jax as tp
      >>> graph = tp.trace(tp.einsum("i k, k n -> i n"), jax.ShapeDtypeStruct((4, 6), "float32"),
      ...                  jax.ShapeDtypeStruct((6, 2), "float32"))
      >>> plan = tp.plan(graph, jax.sharding.AbstractMesh((2,), ("data",)), {"k": "data"})
      >>> tp.assert_collectives(plan, at_most={"all-reduce": 1, "all-gather": 0})
      >>> tp.assert_collectives(plan, at_most={"all-reduce": 0})
      Traceback (most recent call last):
        ...
      combinators.errors.PlanError: the plan communicates more than it may
        all-reduce: at most 0, predicted 1
          all-reduce over data: 32 B, einsum
        Place the dimensions of these operations elsewhere, or allow more.
    """
    if not isinstance(cast("Any", plan), Plan):
        got = f"got {type(plan).__name__}: {spelt(plan)}"
        raise PlanError(message("collectives are counted of a plan", got, remedy="Make one with tp.plan."))
    limits = _read_limits(at_most)
    predicted = plan.collectives(grad)
    compiled = None
    if isinstance(plan.mesh, Mesh):
        text = lower_pinned(plan.schedule, plan.mesh, grad).compile().as_text()
        compiled = compiled_collectives(text, plan.mesh)
    details: list[str] = []
    for kind, limit in limits.items():
        expected = [found for found in predicted if found.kind == kind]
        counted = f"predicted {_executions(expected)}"
        lines = [str(found) for found in expected]
        over = _executions(expected) > limit
        if compiled is not None:
            real = [found for found in compiled if found.kind == kind]
            counted += f", compiled {_executions(real)}"
            if _executions(real) > limit and not over:
                lines = [str(found) for found in real]
                over = True
        if over:
            details.extend([f"{kind}: at most {limit}, {counted}", *("  " + line for line in lines)])
    if details:
        raise PlanError(
            message(
                "the plan communicates more than it may",
                *details,
                remedy="Place the dimensions of these operations elsewhere, or allow more.",
            )
        )


def _executions(found: Sequence[Any]) -> int:
    return sum(each.times for each in found)


def _read_limits(at_most: Any) -> dict[str, int]:
    if not isinstance(at_most, Mapping):
        raise PlanError(
            message(
                "at_most is a mapping from kinds of collectives to numbers",
                f"got {type(at_most).__name__}: {spelt(at_most)}",
                remedy='Write at_most={"all-gather": 0}.',
            )
        )
    for kind, limit in at_most.items():
        if kind not in KINDS:
            raise PlanError(
                message(
                    f"at_most limits {kind!r}, which is no kind of collective",
                    f"kinds: {', '.join(KINDS)}",
                    remedy="Name one of them.",
                )
            )
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
            raise PlanError(
                message(
                    f"at_most gives {kind!r} a limit that is no number",
                    f"got {limit!r}",
                    remedy="Give a non-negative integer.",
                )
            )
    return dict(at_most)
