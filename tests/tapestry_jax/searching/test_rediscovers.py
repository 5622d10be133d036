"""Searches find what people designed: said of the plan found, on 8 x 8 devices of a machine that is not here."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from tapestry_jax.planning.entries.items import Chunks, Halo, axes_of
from tapestry_jax.planning.scheduling.schedule import Region, Repeat, Run, Schedule
from tapestry_jax.searching.finding import anneal
from tests.tapestry_jax.searching.programs import layers, mlp
from tests.thoroughly import thoroughly

MESH = AbstractMesh((8, 8), ("data", "model"))
BOTH = {"data", "model"}
BOTH_MACHINES = pytest.mark.parametrize("machine", ["H100", "v5p:4x4x4"])
LARGE_ON_BOTH = pytest.mark.parametrize("machine", ["H100", pytest.param("v5p:4x4x4", marks=pytest.mark.thorough)])
ALL = anneal.TRIED
CONTEXT = {"seq": ("data", "model"), "keys": tp.chunks(8)}


@pytest.fixture(autouse=True)
def _few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An eighth of the candidates is enough for these; `make thorough` walks as users do."""
    if request.node.get_closest_marker("thorough") is None:
        monkeypatch.setattr(anneal, "TRIED", 50)


def typed(dtype: str = "bfloat16", **sizes: int) -> tp.TensorType:
    return tp.TensorType(sizes, dtype)


def found(graph: tp.Graph, *, grad: bool = True, machine: str = "H100") -> tp.Plan:
    plan = tp.search(graph, MESH, machine, grad=True)
    known = tp.machines.V5P if machine.startswith("v5p") else tp.machines.H100
    assert plan.memory(grad).total <= known.memory.value
    return plan


def axes(plan: tp.Plan, name: str) -> set[str]:
    return set(axes_of(dict(plan.entries).get(name, ())))


def has(plan: tp.Plan, name: str, kind: type) -> bool:
    return any(isinstance(item, kind) for item in dict(plan.entries).get(name, ()))


def cut_at(schedule: Schedule, path: str) -> set[str]:
    """The mesh axes that cut an operation, in loops too."""
    own = {axis for step in schedule.steps if isinstance(step, Run) and step.path == path for axis in step.axes}
    loops = [step.body for step in schedule.steps if isinstance(step, Region | Repeat)]
    return own.union(*(cut_at(body, path) for body in loops))


@BOTH_MACHINES
def test_wide_layers_are_cut_by_columns_then_by_rows(machine: str):
    plan = found(mlp(512, 8192, 65536, "bfloat16"), machine=machine)
    assert axes(plan, "mlp") == BOTH
    assert not axes(plan, "batch")
    forward = [(each.kind, each.path) for each in plan.collectives() if each.path.startswith("einsum")]
    assert [path for _, path in forward] == ["einsum_1"]


@BOTH_MACHINES
def test_large_batches_of_small_weights_are_data_parallel(machine: str):
    plan = found(mlp(2**20, 512, 2048, "bfloat16"), machine=machine)
    assert axes(plan, "batch") == BOTH
    assert plan.collectives() == ()


def heat(x: Any) -> Any:
    return (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]) * 0.25


@LARGE_ON_BOTH
def test_large_images_are_cut_in_space_with_halos(machine: str):
    step = tp.Map(heat, "(y+[dy]-1) (x+[dx]-1) -> y x", sizes={"dy": 3, "dx": 3}, boundary="zero")
    image = typed("float32", y=2**16, x=2**16)
    plan = found(
        tp.trace(lambda image: tp.iterate(step, 16 if thoroughly() else 2)(image), image), grad=False, machine=machine
    )
    assert axes(plan, "y") | axes(plan, "x") == BOTH
    assert has(plan, "y", Halo) or has(plan, "x", Halo)
    assert {each.kind for each in plan.collectives()} == {"collective-permute"}


@LARGE_ON_BOTH
def test_parameters_larger_than_a_device_are_stored_over_the_batch(machine: str):
    plan = found(layers(64, 2**21, 8192), machine=machine)
    assert axes(plan, "batch") == BOTH
    assert len(plan.inputs) == 2
    assert {"all-gather", "reduce-scatter"} <= {each.kind for each in plan.collectives(True)}
    # Activations do not fit either.
    assert plan.remat


def experts(gate: tp.TensorType, x: tp.TensorType, up: tp.TensorType, down: tp.TensorType) -> Any:
    sent = tp.einsum("batch expert slot, batch embed -> expert slot embed")(gate, x)
    hidden = tp.Map(jax.nn.gelu)(tp.einsum("expert slot embed, expert embed mlp -> expert slot mlp")(sent, up))
    made = tp.einsum("expert slot mlp, expert mlp embed -> expert slot embed")(hidden, down)
    return tp.einsum("batch expert slot, expert slot embed -> batch embed")(gate, made)


def test_many_experts_are_shared_out():
    gate, x = typed(batch=8192, expert=64, slot=256), typed(batch=8192, embed=4096)
    up, down = typed(expert=64, embed=4096, mlp=16384), typed(expert=64, mlp=16384, embed=4096)
    plan = found(tp.trace(experts, gate, x, up, down), machine="h100:8x8")
    for path in ("einsum_1", "gelu", "einsum_2"):
        assert cut_at(plan.schedule, path) == BOTH
    assert axes(plan, "expert") == BOTH


DEEP = [(64, 4096, 16384, 8), (64, 4096, 16384, 16), (96, 2048, 8192, 8), (48, 8192, 8192, 8)]


# Stages over slow links are found in finding/test_improved.py.
@pytest.mark.thorough
@pytest.mark.parametrize(("count", "batch", "embed", "hosts"), DEEP)
def test_deep_models_over_slow_links_become_pipelines(
    count: int, batch: int, embed: int, hosts: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(anneal, "TRIED", ALL)
    graph, mesh = layers(count, batch, embed), AbstractMesh((hosts, 8), ("stage", "model"))
    machine = f"h100:{hosts}x8"
    plan = tp.search(graph, mesh, machine, grad=True)
    assert axes(plan, "layer") == {"stage"}
    assert axes(plan, "mlp") == {"model"}
    # As many microbatches as a person would look for.
    hand: dict[str, Any] = {"layer": "stage", "mlp": "model"}
    by_hand = (tp.plan(graph, mesh, hand | {"batch": tp.chunks(number)}) for number in (4, 8, 16, 32, 64))
    assert plan.cost(machine, True).seconds <= min(each.cost(machine, True).seconds for each in by_hand)
    # Links between hosts are slow: activations of all devices that are summed over them take longer.
    cut = tp.plan(graph, mesh, {"mlp": ("stage", "model")})
    assert plan.cost(machine, True).seconds < 0.9 * cut.cost(machine, True).seconds


def test_layers_between_fast_links_become_none():
    plan = tp.search(layers(64, 4096, 16384), AbstractMesh((8, 8), ("stage", "model")), "v5p:4x4x4", grad=True)
    assert not axes(plan, "layer")


@pytest.mark.thorough
def test_long_sequences_are_cut():
    def attend(q: Any, k: Any, v: Any) -> Any:
        return tp.attention(q, k.rename(seq="keys"), v.rename(seq="keys"), over="keys", causal=True)

    heads = typed(batch=1, heads=2, seq=2**20, dim=128)
    plan = found(tp.trace(attend, heads, heads, heads), grad=False)
    # Over queries or keys, by name or as an exception, whatever is cheaper.
    assert cut_at(plan.schedule, "attention") >= BOTH
    assert plan.cost("H100").seconds < 1.05 * tp.plan(plan.graph, MESH, CONTEXT).cost("H100").seconds


# Chunks where nothing in space fits are found in finding/test_improved.py.
@pytest.mark.thorough
@pytest.mark.parametrize(("memory", "name"), [("500MB", "token"), ("300MB", "vocab")])
def test_a_loss_takes_rows_in_chunks_where_their_logits_fit(memory: str, name: str):
    @tp.program("token embed, embed vocab, token -> ()")
    def loss(x: Any, table: Any, targets: Any) -> Any:
        return tp.nnx.cross_entropy(tp.einsum("b e, e v -> b v")(x, table), targets)

    types = (typed("float32", **sizes) for sizes in ({"token": 4096, "embed": 512}, {"embed": 512, "vocab": 32768}))
    graph = tp.trace(loss, *types, tp.TensorType({"token": 4096}, jnp.int32))
    plan = tp.search(graph, AbstractMesh((1,), ("data",)), "H100", memory=memory, grad=True)
    assert [of for of, _ in plan.entries] == [name]
    assert has(plan, name, Chunks)


@pytest.mark.thorough
def test_losses_over_large_vocabularies_run_in_chunks():
    def loss(x: Any, table: Any, targets: Any) -> Any:
        logits = tp.einsum("batch embed, embed vocab -> batch vocab")(x, table)
        return tp.nnx.cross_entropy(logits, targets)

    types = typed(batch=2**22, embed=4096), typed(embed=4096, vocab=2**18), tp.TensorType({"batch": 2**22}, jnp.int32)
    plan = found(tp.trace(loss, *types))
    assert axes(plan, "batch") == BOTH
    assert has(plan, "batch", Chunks) or has(plan, "vocab", Chunks)


@pytest.mark.thorough
def test_layers_that_keep_too_much_are_computed_again():
    plan = found(layers(96, 2**21, 2048))
    assert axes(plan, "batch") == BOTH
    assert plan.remat
