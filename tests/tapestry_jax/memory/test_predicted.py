"""The memory that a plan needs, held against what the compiler allots."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType

import tapestry_jax as tp
from combinators.errors import PlanError
from tapestry_jax.lowering.pinned import lower_pinned, trace_pinned
from tapestry_jax.lowering.time import summed
from tapestry_jax.memory.predicted import memory_of

LAYERS, EMBED, HIDDEN, BATCH = 8, 128, 512, 512


@tp.program("batch embed, layer embed mlp, layer mlp embed -> ()")
def deep(x, up, down):
    linear = tp.einsum("b k, k n -> b n")

    def layer(x, up, down):
        return x + linear(tp.Map(jax.nn.relu)(linear(x, up)), down)

    y = tp.stack(layer, LAYERS, name="layers")(x, up, down)
    return tp.fold(tp.aggregators.Mean(), "batch embed -> ()")(y)


@pytest.fixture(scope="module")
def graph():
    shapes = (BATCH, EMBED), (LAYERS, EMBED, HIDDEN), (LAYERS, HIDDEN, EMBED)
    return tp.trace(deep, *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))


def compiled(plan, grad):
    said = lower_pinned(plan.schedule, plan.mesh, grad).compile().memory_analysis()
    return said.argument_size_in_bytes, said.output_size_in_bytes, said.temp_size_in_bytes


@pytest.mark.parametrize(
    ("entries", "options"),
    [
        ({"batch": "data", "mlp": "model"}, {}),
        ({"batch": ("data", tp.chunks(2)), "mlp": "model"}, {"remat": True}),
    ],
    ids=["kept", "again in chunks"],
)
def test_the_prediction_is_within_a_tenth_of_the_compiler(graph, mesh2x4, entries, options):
    plan = tp.fsdp(tp.plan(graph, mesh2x4, entries, **options), "data")
    found = plan.memory(grad=True)
    arguments, results, temporaries = compiled(plan, True)
    # The compiler adds the table of its four results.
    assert (found.arguments, found.results) == (arguments, results - 4 * 8)
    assert found.total == pytest.approx(arguments + results + temporaries, rel=0.1)


@tp.program("batch embed, other embed, batch -> batch")
def third(x, unread, y):
    del x, unread
    return tp.Map(jnp.sin)(y)


def test_pieces_that_nobody_reads_and_zeros_are_counted_as_they_are_stored(mesh2x4):
    shapes = (BATCH, EMBED), (HIDDEN, EMBED), (BATCH,)
    graph = tp.trace(third, *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))
    inputs = {"unread": {"other": ("data", "model")}, "x": {"batch": "data"}}
    plan = tp.plan(graph, mesh2x4, {"batch": "model"}, inputs=inputs)
    pieces = [4 * BATCH // 2 * EMBED, 4 * HIDDEN // 8 * EMBED, 4 * BATCH // 4]
    found = [plan.memory(grad=grad) for grad in (False, True)]
    assert [each.arguments for each in found] == [sum(pieces), sum(pieces) + pieces[2]]
    assert [each.results for each in found] == [pieces[2], pieces[2] + sum(pieces)]
    # The compiler leaves out arguments that nobody reads; their gradients it has to give, with a table of all four.
    arguments, results, _ = compiled(plan, True)
    assert (arguments, results) == (2 * pieces[2], found[1].results + 4 * 8)


def test_devices_are_not_needed(graph, mesh2x4):
    abstract = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    entries = {"batch": "data", "mlp": "model"}
    found = [tp.plan(graph, mesh, entries, platforms="cpu").memory(grad=(1, 2)) for mesh in (abstract, mesh2x4)]
    assert found[0] == found[1] == tp.plan(graph, mesh2x4, entries).memory(grad=(1, 2))


def test_what_fits_on_the_chip_of_a_tpu_lies_there(graph, mesh2x4):
    plan = tp.plan(graph, mesh2x4, {"batch": "data", "mlp": "model"}, platforms="tpu")
    jaxpr = trace_pinned(plan.schedule, mesh2x4, True).jaxpr
    kinds = "TPU v5 lite", "TPU v6 lite", "TPU v5", ""
    there, newer, apart, unknown = (memory_of(jaxpr, plan.schedule, ("tpu",), True, kind) for kind in kinds)
    assert there == newer and there.temporaries == 0 < there.on_chip < 128 * 2**20
    assert f"in its own memory: {there.on_chip:,} B" in str(there)
    # Of a v5p memory is allotted for them, and so it is counted where nobody says which TPU it is.
    assert apart == unknown == plan.memory(grad=True)
    assert (apart.temporaries, apart.on_chip) == (there.on_chip, 0)


@tp.program("heads queries d, heads keys d, heads keys e -> heads queries e")
def masked(q, k, v):
    return tp.attention(q, k, v, causal=True)


@tp.program("batch embed, embed mlp, mlp embed, batch embed -> ()")
def loss(x, up, down, y):
    linear = tp.einsum("b k, k n -> b n")
    apart = linear(tp.Map(jax.nn.gelu)(linear(x, up)), down) - y
    return tp.fold(tp.aggregators.Mean(), "batch embed -> ()")(apart * apart)


@pytest.mark.parametrize(
    ("program", "shapes", "entries"),
    [
        (loss, ((1024, 128), (128, 512), (512, 128), (1024, 128)), {"batch": ("data", "model")}),
        (masked, ((4, 512, 32),) * 3, {"heads": "model"}),
    ],
    ids=["kernels of the library", "a mask"],
)
def test_what_a_library_computes_is_predicted(mesh2x4, program, shapes, entries):
    graph = tp.trace(program, *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))
    plan = tp.plan(graph, mesh2x4, entries)
    assert plan.memory().total == pytest.approx(sum(compiled(plan, False)), rel=0.1)


def test_what_is_kept_and_what_is_computed_again_are_told_apart_by_path(graph, mesh2x4):
    kept, again = (
        tp.plan(graph, mesh2x4, {"batch": "data", "mlp": "model"}, remat=remat).memory(grad=True)
        for remat in (None, True)
    )
    # What goes into a layer and what both products gave, or only the first and what was received.
    assert again.temporaries < 0.8 * kept.temporaries
    largest = max(kept.live, key=lambda live: live.bytes)
    assert largest.type == f"float32[{LAYERS},{BATCH // 2},{HIDDEN // 4}]" and largest.path.startswith("layers")
    text = str(kept)
    assert text.splitlines()[0] == f"memory of one device: {kept.total:,} B" and largest.type in text


def test_gradient_accumulation_does_not_gather_all_layers_at_once(graph, mesh2x4, monkeypatch):
    entries = {"batch": ("data", tp.chunks(4)), "mlp": "model"}

    def largest():
        plan = tp.fsdp(tp.plan(graph, mesh2x4, entries, remat=True), "data")
        return {live.type for live in plan.memory(grad=True).live}

    gathered = f"float32[{LAYERS},{EMBED},{HIDDEN // 4}]"
    assert gathered not in largest()
    # JAX moves nothing out of a loop that is not divided, and nothing that depends on the turn out of one that is.
    monkeypatch.setattr(summed, "_undivided", lambda loop: loop)
    assert gathered not in largest()
    monkeypatch.setattr(summed, "held_in_turn", lambda body, operands, counter: operands)
    assert gathered in largest()


def test_positions_are_those_of_arguments(graph, mesh2x4):
    with pytest.raises(PlanError, match="argument"):
        tp.plan(graph, mesh2x4, {"batch": "data"}).memory(grad=(7,))
