"""Pipelines: layers over a mesh axis, a dimension that flows through them in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import chex
import jax
import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tapestry_jax.planning.scheduling.schedule import Region
from tests.contract import assert_contract, assert_holds, assert_same
from tests.simulated.evaluate import simulated
from tests.simulated.sampled import computed
from tests.tapestry_jax.draw import normal
from tests.thoroughly import thoroughly

matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
gelu = tp.Map(jax.nn.gelu)
largest = tp.Reduce(lambda x: x.max(1), "r c -> r", tp.monoids.Max)
summed = tp.Reduce(lambda x: x.sum(1), "b s e -> b e", tp.monoids.Sum)


def layer(x: Any, up: Any, down: Any) -> Any:
    return x + matmul(gelu(matmul(x, up)), down)


def network(layers: int) -> Any:
    @tp.program("batch embed, layer embed mlp, layer mlp embed -> batch embed")
    def run(x: Any, up: Any, down: Any) -> Any:
        return tp.stack(layer, layers)(x, up, down)

    return run


@tp.program("batch seq embed, layer embed heads d, layer heads d embed -> batch seq embed")
def transformer(x: Any, into: Any, out: Any) -> Any:
    def block(x: Any, into: Any, out: Any) -> Any:
        q = tp.einsum("b s e, e h d -> b s h d")(x, into)
        mixed = tp.attention(q, q.rename(seq="keys"), q.rename(seq="keys"), over="keys", causal=True)
        return x + tp.einsum("b s h d, h d e -> b s e")(mixed, out)

    return tp.stack(block, 4)(x, into, out)


@tp.program("batch seq embed, layer embed -> batch embed")
def normed(x: Any, scale: Any) -> Any:
    """What comes before the layers, two carries, a constant of theirs, and a fold behind them."""
    start = tp.Map(jnp.tanh)(x)

    def one(carry: Any, scale: Any) -> Any:
        y, total = carry
        y = tp.Map(jnp.sin)(y * scale) + y
        return y, total + y

    y, total = tp.stack(one, 4)((start, start * 0.5), scale)
    return summed(y * total)


@tp.program("batch embed, layer embed, batch embed, embed -> batch embed")
def conditioned(x: Any, scale: Any, context: Any, shared: Any) -> Any:
    """What all layers use: each stage reads another chunk of the one, and has a share in the gradient of the other."""

    def one(y: Any, scale: Any) -> Any:
        return tp.Map(jnp.tanh)(shared * y + context * scale)

    return tp.stack(one, 4)(x, scale)


@tp.program("batch d, batch d -> batch d, batch d")
def step(x: Any, state: Any) -> Any:
    after = tp.Map(jnp.tanh)(x + state * 0.5)
    return after * x, after


recurrent = tp.program("time batch d, batch d -> time batch d, batch d")(step.feedback("time"))


def draw(*shapes: tuple[int, ...], scale: float = 0.3) -> list[Any]:
    return [normal(*shape, seed=i, scale=scale) for i, shape in enumerate(shapes)]


def mlp_args(layers: int, batch: int) -> list[Any]:
    return draw((batch, 8), (layers, 8, 12), (layers, 12, 8))


def mesh_of(**axes: int) -> Any:
    return tp.mesh(jax.devices("cpu"), **axes)


def planned(program: Any, args: list[Any], mesh: dict[str, int], entries: dict[str, Any], **options: Any) -> Any:
    return tp.plan(tp.trace(program, *args), mesh_of(**mesh), entries, **options)


def pipelines(schedule: Any) -> Iterator[Region]:
    for step in schedule.steps:
        if isinstance(step, Region):
            yield from (step,) if step.stages else pipelines(step.body)


@pytest.mark.parametrize(
    ("program", "args", "mesh", "entries"),
    [
        pytest.param(
            *(network(8), mlp_args(8, 16), {"stage": 4}, {"layer": "stage", "batch": tp.chunks(4)}),
            marks=pytest.mark.thorough,
        ),
        # Layers and chunks are uneven, each layer is cut over further axes.
        (
            network(7),
            mlp_args(7, 13),
            {"data": 2, "stage": 2, "model": 2},
            {"layer": "stage", "batch": ("data", tp.chunks(3)), "mlp": "model"},
        ),
        # Stages count along the axes as listed, not as the mesh has them.
        pytest.param(
            network(8),
            mlp_args(8, 10),
            {"data": 4, "model": 2},
            {"layer": ("model", "data"), "batch": tp.chunks(5)},
            marks=pytest.mark.thorough,
        ),
        # A level of its own inside every layer, as folds of chunks are below.
        pytest.param(
            transformer,
            draw((4, 6, 8), (4, 8, 2, 4), (4, 2, 4, 8)),
            {"data": 2, "stage": 4},
            {"layer": "stage", "batch": tp.chunks(4), "seq": "data", "keys": tp.chunks(2)},
            marks=pytest.mark.thorough,
        ),
        (
            normed,
            draw((6, 4, 8), (4, 8)),
            {"data": 2, "stage": 4},
            {"layer": "stage", "batch": ("data", tp.chunks(3)), "seq": tp.chunks(2)},
        ),
        (
            conditioned,
            draw((6, 8), (4, 8), (6, 8), (8,), scale=0.8),
            {"data": 2, "stage": 4},
            {"layer": "stage", "batch": tp.chunks(3), "embed": "data"},
        ),
        # A recurrence: the pieces of a sequence are stages, and every stage gives outputs.
        (
            recurrent,
            draw((7, 6, 3), (6, 3)),
            {"data": 4},
            {"time": "data", "batch": tp.chunks(3)},
        ),
    ],
    ids=["mlp", "uneven", "two-axes", "attention", "carries", "constants", "recurrence"],
)
def test_pipelines_hold(program: Any, args: list[Any], mesh: dict[str, int], entries: dict[str, Any]) -> None:
    plan = planned(program, args, mesh, entries)
    assert len(list(pipelines(plan.schedule))) == 1
    assert_holds(plan, args)


def test_each_device_holds_its_own_layers_and_explain_shows_the_bubble() -> None:
    plan = planned(network(8), mlp_args(8, 16), {"stage": 4}, {"layer": "stage", "batch": tp.chunks(4)})
    x, up, down = plan.put(*mlp_args(8, 16))
    assert x.sharding.is_fully_replicated
    assert {shard.data.shape for shard in up.addressable_shards} == {(2, 8, 12)}
    assert {shard.data.shape for shard in down.addressable_shards} == {(2, 12, 8)}
    assert "7 turns, 4 stages, bubble 3/7 (43%)" in plan.explain()
    assert "collective-permute stage 128 B x7" in plan.explain()
    # Every turn hands one chunk on; the last stage's results are shared once.
    assert [(each.kind, each.bytes, each.times) for each in plan.collectives()] == [
        ("collective-permute", 4 * 8 * 4, 7),
        ("all-reduce", 16 * 8 * 4, 1),
    ]


def test_what_stands_around_a_pipeline_shares_no_loop_with_it() -> None:
    @tp.program("batch embed, layer embed mlp, layer mlp embed -> batch")
    def losses(x: Any, up: Any, down: Any) -> Any:
        y = tp.stack(layer, 4)(tp.Map(jnp.sin)(x), up, down)
        y = tp.stack(layer, 4)(y, up, down)
        return largest(y)

    args = mlp_args(4, 8)
    plan = planned(losses, args, {"stage": 4}, {"layer": "stage", "batch": tp.chunks(4)})
    regions = [bool(step.stages) for step in plan.schedule.steps if isinstance(step, Region)]
    assert regions == [False, True, True, False]
    assert_same(plan, args)
    assert_contract(plan, thoroughly())


def test_pipelines_have_all_derivatives() -> None:
    program, args = network(4), mlp_args(4, 4)
    plan = planned(program, args, {"stage": 4}, {"layer": "stage", "batch": tp.chunks(2)})

    def checked(function: Any) -> Any:
        def loss(up: Any) -> Any:
            return jnp.sum(function(args[0], up, args[2]) ** 2)

        def twice(up: Any) -> Any:
            return jax.jvp(jax.grad(loss), (up,), (args[1],))

        return computed(lambda up: (twice(up), jax.vmap(loss)(jnp.stack([up, -up]))), args[1])

    chex.assert_trees_all_close(checked(plan.compile()), checked(program), rtol=1e-4, atol=1e-5)


def test_a_pipeline_stands_inside_other_loops() -> None:
    def one(x: Any, scale: Any) -> Any:
        return x + tp.Map(jnp.tanh)(x * scale)

    @tp.program("batch embed, group layer embed -> batch embed")
    def groups(x: Any, scale: Any) -> Any:
        return tp.stack(tp.stack(one, 2), 3, over="group")(x, scale)

    @tp.program("batch embed, layer embed -> batch embed")
    def again(x: Any, scale: Any) -> Any:
        return tp.iterate(tp.stack(one, 2), 3)(x, scale)

    for program, args in ((groups, draw((4, 3), (3, 2, 3))), (again, draw((4, 3), (2, 3)))):
        plan = planned(program, args, {"stage": 2, "data": 4}, {"layer": "stage", "batch": tp.chunks(2)})
        assert_same(plan, args)
        assert_contract(plan)


@pytest.mark.parametrize(("layers", "stages"), [(4, 1), (0, 2)])
def test_a_mesh_axis_of_one_device_and_no_layers_need_no_stages(layers: int, stages: int) -> None:
    args = mlp_args(layers, 4)
    plan = planned(network(layers), args, {"stage": stages, "data": 8 // stages}, {"layer": "stage", "batch": "data"})
    assert not list(pipelines(plan.schedule))
    assert_same(plan, args)


def test_turns_without_a_chunk_leave_no_trace() -> None:
    """Zeros, which no chunk holds, would give the weights of every stage a gradient that is not a number."""

    @tp.program("batch embed, layer embed -> batch embed")
    def scaled(x: Any, scale: Any) -> Any:
        return tp.stack(lambda x, scale: tp.Map(lambda x, s: x / jnp.sqrt(jnp.abs(x)) / s)(x, scale), 5)(x, scale)

    args = [1 + jnp.abs(array) for array in draw((6, 3), (5, 3))]
    plan = planned(scaled, args, {"stage": 3}, {"layer": "stage", "batch": tp.chunks(3)})
    assert_same(plan, args)


ROWS = mlp_args(6, 8)
FLOWS = "  Let every operation inside pass the chunks of one dimension on, or leave `layer` out."


@pytest.mark.parametrize(
    ("entries", "options", "text"),
    [
        (
            {"layer": "stage"},
            {},
            """the plan places `layer`, whose 6 turns of `stack` follow one another: no chunks flow
  what a turn hands on: `float32(batch=8, embed=8)`
  turns are stages of a pipeline where each keeps a dimension that the plan takes in chunks
  Take such a dimension in chunks, as in {"batch": tp.chunks(8)}, or leave `layer` out.""",
        ),
        (
            {"layer": "stage", "embed": "data", "mlp": tp.chunks(2)},
            {"ops": {"stack": {"layer": "stage"}}},
            "the plan places `layer`, whose 6 turns of `stack` follow one another: no chunks flow",
        ),
        (
            {"layer": "stage", "mlp": tp.chunks(2), "batch": tp.chunks(1)},
            {},
            f"""the plan places `layer`, whose 6 turns of `stack` follow one another: no chunks flow
  what a turn hands on: `float32(batch=8, embed=8)`
  turns are stages of a pipeline where each keeps a dimension that the plan takes in chunks
  `stack/matmul_1` combines the chunks of `mlp`
  `batch` is one chunk, where stages need two
{FLOWS}""",
        ),
        (
            {"layer": "stage", "batch": tp.chunks(2)},
            {"ops": {"stack/gelu": {"batch": None}}},
            f"""the plan places `layer`, whose 6 turns of `stack` follow one another: no chunks flow
  what a turn hands on: `float32(batch=8, embed=8)`
  turns are stages of a pipeline where each keeps a dimension that the plan takes in chunks
  `stack/gelu` needs all of `batch` at once
{FLOWS}""",
        ),
        (
            {"layer": ("stage", tp.chunks(2)), "batch": tp.chunks(2)},
            {},
            """the plan takes `layer`, whose 6 turns of `stack` follow one another, in loops
  got (stage, chunks(2))
  turns are taken one at a time as it is; on mesh axes they are stages of a pipeline
  Name mesh axes alone, as in {"layer": "stage"}, or leave `layer` out.""",
        ),
        (
            {"layer": tp.chunks(2), "batch": tp.chunks(2)},
            {},
            "the plan takes `layer`, whose 6 turns of `stack` follow one another, in loops",
        ),
        (
            {"layer": ("stage", "data"), "batch": tp.chunks(2)},
            {},
            """the plan divides 6 layers of `stack` among 8 stages, some of which stay empty
  a stage takes 1 layers, so that 6 stages hold all of them
  Place `layer` on a mesh axis of 6 devices.""",
        ),
        (
            {"layer": "data", "batch": ("data", tp.chunks(2))},
            {},
            """`stack/matmul` has both `layer` and `batch` on the mesh axis `data`
  the layers of `stack` are stages of a pipeline along it
  Except one of them: ops={"stack/matmul": {"batch": None}}.""",
        ),
    ],
    ids=[
        "no-chunks",
        "exception",
        "one-chunk",
        "whole-inside",
        "chunks-too",
        "chunks-alone",
        "empty-stages",
        "axis-twice",
    ],
)
def test_refused(entries: dict[str, Any], options: dict[str, Any], text: str) -> None:
    with pytest.raises(tp.PlanError) as raised:
        planned(network(6), ROWS, {"data": 2, "stage": 4}, entries, **options)
    assert str(raised.value).startswith(text)


def test_layers_that_differ_in_type_do_not_stack() -> None:
    def wider(x: Any, up: Any, down: Any) -> Any:
        return matmul(x, up)

    @tp.program("batch embed, layer embed mlp, layer mlp embed -> batch embed")
    def run(x: Any, up: Any, down: Any) -> Any:
        return tp.stack(wider, 6)(x, up, down)

    with pytest.raises(tp.CompositionError) as raised:
        tp.trace(run, *ROWS)
    assert str(raised.value) == (
        "`stack` cannot repeat its step: carry 0 comes out as another type\n"
        "  goes in as   Value(float32(batch=8, embed=8))\n"
        "  comes out as Value(float32(batch=8, mlp=12))\n"
        "  Make the step return what it takes: the same names, sizes and dtype."
    )


def test_layers_that_are_misspelt_are_listed() -> None:
    with pytest.raises(tp.PlanError, match=r"`layers`, which is no dimension of the graph\n  .*embed, layer, mlp"):
        planned(network(6), ROWS, {"stage": 2}, {"layers": "stage", "batch": tp.chunks(2)})


def test_a_stage_chooses_its_operand_outside_of_what_is_computed_again() -> None:
    shapes = ((8, 4), (4, 4, 6), (4, 6, 4))
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    mesh = tp.mesh(jax.devices()[:4], stage=4)
    plan = tp.plan(tp.trace(network(4), *arrays), mesh, {"layer": "stage", "batch": tp.chunks(4)})
    again = list(_recomputed(jax.make_jaxpr(plan.compile())(*arrays).jaxpr))
    assert again and not any("select_n" in str(program) for program in again)


@pytest.mark.parametrize(
    ("program", "shapes", "entries", "slices"),
    [
        (network(4), ((8, 4), (4, 4, 6), (4, 6, 4)), {"layer": "stage", "batch": tp.chunks(4)}, 0),
        # What every stage gives stands elsewhere on each of them; what the last state is made of does not.
        (recurrent, ((4, 8, 3), (8, 3)), {"time": "stage", "batch": tp.chunks(4)}, 1),
    ],
    ids=["last", "each"],
)
def test_what_the_last_stage_gives_is_taken_where_it_is_known_to_be(
    program: Any, shapes: Any, entries: Any, slices: int
) -> None:
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    plan = tp.plan(tp.trace(program, *arrays), tp.mesh(jax.devices()[:4], stage=4), entries)
    assert _sliced(jax.make_jaxpr(plan.compile())(*arrays).jaxpr) == slices


def _sliced(jaxpr: Any) -> int:
    """How many slices outside of loops stand at a place that is computed."""
    found = sum(each.primitive.name == "dynamic_slice" for each in jaxpr.eqns)
    inside = [
        getattr(value, "jaxpr", value)
        for each in jaxpr.eqns
        if each.primitive.name != "scan"
        for value in each.params.values()
    ]
    return found + sum(_sliced(inner) for inner in inside if hasattr(inner, "eqns"))


def _recomputed(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if not hasattr(inner, "eqns"):
                continue
            if equation.primitive.name in ("checkpoint", "remat", "remat2"):
                yield inner
            else:
                yield from _recomputed(inner)


@jax.custom_vjp
def doubled(x: Any) -> Any:
    return x * 2


doubled.defvjp(lambda x: (x * 2, x), lambda x, cotangent: (cotangent + jnp.cos(x),))


def test_a_derivative_that_makes_something_of_nothing_is_called_in_turns_that_somebody_reads() -> None:
    @tp.program("batch embed, layer embed -> batch embed")
    def run(x: Any, scale: Any) -> Any:
        return tp.stack(lambda x, scale: tp.Map(doubled)(x * scale), 4)(x, scale)

    args = draw((8, 3), (4, 3))
    graph = tp.trace(run, *args)
    planned = tp.plan(graph, tp.mesh(stage=2), {"layer": "stage", "batch": tp.chunks(4)}).compile()
    slopes = [simulated(jax.grad(lambda *a, of=of: of(*a).sum(), (0, 1)), *args) for of in (planned, graph)]
    chex.assert_trees_all_close(*slopes, rtol=1e-5)
