"""The factored model says of any placement what `plan.cost` says of its schedule, without planning it."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.machines.figures import Figure
from tapestry_jax.machines.known import find
from tapestry_jax.machines.laid import lay
from tapestry_jax.memory.predicted import memory_needed
from tapestry_jax.planning.geometry.layout import Layout, even_cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.planned import planned
from tapestry_jax.planning.pricing.priced import price
from tapestry_jax.searching.exact.homes import DoesNotFitError
from tapestry_jax.searching.exact.model import undominated
from tapestry_jax.searching.exact.prices import Prices, Want
from tapestry_jax.searching.exact.solve import solve
from tests.pairs.programs import draw_program
from tests.tapestry_jax.searching.exact.modelled import (
    abstract,
    asked_of,
    drawn,
    modelled,
    problem_of,
    settled,
)
from tests.tapestry_jax.searching.programs import apart, layers, mlp
from tests.thoroughly import but


def block(layers: int, batch: int = 16, embed: int = 128) -> tp.Graph:
    """Stacked layers of a product, a nonlinearity, a product and a residual, with a loss behind them."""
    up = tp.einsum("batch seq embed, embed mlp -> batch seq mlp")
    down = tp.einsum("batch seq mlp, mlp embed -> batch seq embed")

    @tp.program("batch seq embed, embed mlp, mlp embed -> batch seq embed")
    def layer(x: Any, w1: Any, w2: Any) -> Any:
        return x + down(tp.Map(jax.nn.gelu)(up(x, w1)), w2)

    def run(x: Any, w1: Any, w2: Any) -> Any:
        return tp.fold(tp.aggregators.Mean(), "batch seq embed -> ")(tp.stack(layer, layers)(x, w1, w2))

    kinds = {"batch": batch, "seq": 64, "embed": embed}, {"layer": layers, "embed": embed, "mlp": 4 * embed}
    last = {"layer": layers, "mlp": 4 * embed, "embed": embed}
    return tp.trace(run, *(tp.TensorType(sizes, jnp.bfloat16) for sizes in (*kinds, last)))


def convolutions() -> tp.Graph:
    def kernel(x: Any, k: Any) -> Any:
        return jax.lax.conv_general_dilated(x, k, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    signature = "b (y+[dy]-1) (x+[dx]-1) c, [dy] [dx] c o -> b y x o"
    first, second = (tp.Reduce(kernel, signature, tp.monoids.Sum, boundary="zero") for _ in range(2))

    def net(x: Any, k1: Any, k2: Any) -> Any:
        return second(tp.Map(jax.nn.relu)(first(x, k1)).rename(o="c"), k2)

    sizes = {"b": 8, "y": 16, "x": 16, "c": 4}, {"dy": 3, "dx": 3, "c": 4, "o": 8}, {"dy": 3, "dx": 3, "c": 8, "o": 16}
    return tp.trace(net, *(tp.TensorType(each, jnp.float32) for each in sizes))


SLOW = pytest.mark.thorough
PROGRAMS = {
    "mlp": (lambda: mlp(512, 256, 1024), (), False),
    "mlp with gradients": (lambda: mlp(512, 256, 1024), (), True),
    "stacked layers": (lambda: block(4), (), True),
    "stacked layers computed again": (lambda: block(4), (("stack", True),), True),
    "layers one by one": (lambda: apart(3, 4096, 1024, 4096), (), True),
    "layers one by one computed again": (lambda: apart(3, 4096, 1024, 4096), (("", True),), True),
    "convolutions with gradients": (convolutions, (), True),
}


def ratios(graph: tp.Graph, machine: str, remat: Any, grad: bool, count: int, **axes: int) -> list[float]:
    problem = problem_of(graph, abstract(**axes), machine, grad)
    found, chance = modelled(problem, remat), Random(graph.key)
    prices: list[float] = []
    for _ in range(count):
        choice = drawn(found, chance)
        schedule = planned(graph, problem.mesh, asked_of(problem, found, choice))
        exact = price(schedule, problem.machine, grad).seconds
        own = found.model.price(settled(found, choice, schedule))
        prices.append(own / exact if exact else 1.0 + own)
    return prices


@pytest.mark.parametrize("name", [pytest.param(n, marks=[SLOW] * n.startswith("conv")) for n in PROGRAMS])
def test_prices_are_those_of_the_schedule(name: str):
    make, remat, grad = PROGRAMS[name]
    assert ratios(make(), "h100", remat, grad, 6, data=4, model=2) == pytest.approx([1.0] * 6, rel=1e-6)


def test_an_argument_that_two_read_in_a_layer_that_is_computed_again_is_changed_once():
    # Of the rows that go into the first layer the gradient of the product needs them, and that of the sum does not.
    assert ratios(apart(3, 256, 512, 2048), "h100", (("", True),), True, 12, data=8) == pytest.approx([1.0] * 12, 1e-6)


def test_what_several_layers_read_that_are_computed_again_is_priced_none_too_high():
    # Planning gathers it once for all of them; in layouts of their own each would gather it again.
    scaled, up = (
        tp.Map(lambda x, scale: x * scale, "... f, f -> ... f"),
        tp.einsum("batch embed, embed mlp -> batch mlp"),
    )

    @tp.program("batch embed, embed mlp, mlp -> batch embed")
    def layer(x: Any, w: Any, scale: Any) -> Any:
        return x + tp.einsum("batch mlp, embed mlp -> batch embed")(scaled(up(x, w), scale), w)

    def deep(x: Any, w: Any, scale: Any) -> Any:
        return tp.fold(tp.aggregators.Mean(), "batch embed -> ")(layer(layer(x, w, scale), w, scale))

    kinds = {"batch": 256, "embed": 512}, {"embed": 512, "mlp": 2048}, {"mlp": 2048}
    graph = tp.trace(deep, *(tp.TensorType(sizes, jnp.bfloat16) for sizes in kinds))
    found = ratios(graph, "h100", (("", True),), True, 12, data=4, model=2)
    assert max(found) <= 1 + 1e-9 and min(found) > 0.8


def test_of_layers_one_by_one_that_are_computed_again_one_at_a_time_is_held():
    # Backwards the kernel between the products needs what it makes inside.
    graph = apart(12, 8192, 512, 2048, tp.Map(lambda row: jnp.sort(jnp.exp(row)), "... [f] -> ... [f]"))
    problem = problem_of(graph, abstract(data=4, model=2), "h100", True)
    shares: list[float] = []
    for remat in ((), (("", True),)):
        found = modelled(problem, remat)
        choice = solve(found.model).choice
        schedule = planned(graph, problem.mesh, asked_of(problem, found, choice))
        held = found.model.held(settled(found, choice, schedule))
        shares.append(held / memory_needed(schedule, problem.mesh, True).total)
    assert shares == pytest.approx([1.0, 1.0], rel=0.1)


def test_a_model_of_which_picks_alone_hold_too_much_is_not_built():
    problem = problem_of(apart(3, 64, 16, 32), abstract(data=2), grad=True)
    found, chance = modelled(problem), Random(0)
    least = sum(min(pick.held) for pick in found.model.picks)
    assert min(found.model.held(drawn(found, chance)) for _ in range(20)) >= least > 0
    assert modelled(problem, memory=least).model.picks == found.model.picks
    with pytest.raises(DoesNotFitError):
        modelled(problem, memory=0.99 * least)


def test_gradients_that_loops_write_are_there_all_along_and_others_in_the_end():
    total = tp.trace(lambda x: tp.fold(tp.aggregators.Sum(), "a b -> ")(x), tp.TensorType({"a": 64, "b": 64}))
    for graph, early in ((total, 1), (layers(4, 16, 64), 2)):
        problem = problem_of(graph, abstract(data=2), grad=True)
        found = modelled(problem)
        given = [pick for pick, each in zip(found.model.picks, found.chosen, strict=True) if each.kind == "input"]
        stays = [pick for pick in given if pick.held == pick.after]
        lent = [pick for pick in given if tuple(2 * size for size in pick.held) == pick.after]
        assert len(stays + lent) == len(given) and bool(stays) == (early == 2) and bool(lent) == (early == 1)
        # What is there in the end has to fit, whatever is chosen.
        least = sum(min(pick.after) for pick in given)
        with pytest.raises(DoesNotFitError):
            modelled(problem, memory=0.99 * least)


def test_prices_on_a_torus_are_those_of_the_schedule():
    # Compilers for TPUs fuse products with what reads them. Small kernels would all hide behind their starts.
    assert ratios(block(4, 64, 512), "v5p", (), True, 6, data=4, model=2) == pytest.approx([1.0] * 6, rel=1e-6)


def test_prices_of_most_random_programs_are_those_of_the_schedule():
    drawn_ratios: list[float] = []
    for number in range(5):
        graph = draw_program(f"factored {number}").graph
        drawn_ratios += ratios(graph, "h100", (), number % 2 == 1, 4, data=2, model=2)
    # Results that other operations read too in the layout in which they leave are counted twice.
    close = sum(abs(ratio - 1) < 0.01 for ratio in drawn_ratios)
    assert close >= 0.9 * len(drawn_ratios)
    assert min(drawn_ratios) > 0.99


@pytest.mark.parametrize("name", but(["h100", "v6e"], "v6e"))
def test_what_passes_behind_layers_is_priced_as_in_the_schedule_or_below_and_no_plan_is_below_the_bound(name: str):
    graph, hidden, binding = block(4), 0, 0
    for slower in (1, 300):
        known = find(name)
        link = replace(known.inside, bandwidth=Figure(known.inside.bandwidth.value / slower, "slow"))
        problem = replace(problem_of(graph, abstract(data=4, model=2), name, True), machine=replace(known, inside=link))
        found, chance = modelled(problem), Random(7)
        bound = solve(undominated(found.model)).bound
        for _ in range(25):
            choice = drawn(found, chance)
            schedule = planned(graph, problem.mesh, asked_of(problem, found, choice))
            cost = price(schedule, problem.machine, True)
            own = found.model.price(settled(found, choice, schedule))
            assert 0.999 * cost.seconds < own <= cost.seconds * (1 + 1e-9)
            assert bound <= cost.seconds * (1 + 1e-9)
            hidden += cost.hidden > 0
            machine = replace(problem.machine, hides=tuple((k, Figure(0.1 * f.value, "")) for k, f in known.hides))
            binding += price(schedule, machine, True).hidden > 0.11 * cost.hidden
    # Some have more to send than there is room for.
    assert hidden > 40 and binding > 10


def test_the_solver_weighs_what_finds_no_room_behind_layers():
    problem = problem_of(block(2), abstract(data=2), "h100", True)
    slow = replace(problem.machine.inside, bandwidth=Figure(2e10, "slow"))
    model = modelled(replace(problem, machine=replace(problem.machine, inside=slow))).model
    # Parameters have to be cut, and are gathered for longer than layers compute.
    memory = 0.56 * model.held(solve(model, gap=1e-4).choice)
    best = solve(model, memory, gap=1e-4)
    assert best.bound == pytest.approx(best.seconds, rel=2e-4)
    assert solve(undominated(model), memory, gap=1e-4).seconds == pytest.approx(best.seconds, rel=2e-4)
    roomy = [
        replace(pick, rooms=tuple((at, (1.0,) * len(all_), s) for at, all_, s in pick.rooms)) for pick in model.picks
    ]
    assert replace(model, picks=tuple(roomy)).price(best.choice) < 0.9 * best.seconds


def test_prices_of_what_stays_on_the_chip_of_a_tpu_are_those_of_the_schedule():
    @tp.program("batch embed -> embed, embed")
    def sorted_means(x: Any) -> Any:
        y = tp.Map(jnp.sort, "... [c] -> ... [c]")(x)
        largest = tp.Reduce(lambda y: y.max(0), "b e -> e", tp.monoids.Max)
        return tp.Reduce(lambda y: y.sum(0), "b e -> e", tp.monoids.Sum)(y), largest(y)

    graph = tp.trace(sorted_means, tp.TensorType({"batch": 8192, "embed": 1024}, jnp.float32))
    assert ratios(graph, "v5e", (), False, 8, data=2, model=4) == pytest.approx([1.0] * 8, rel=1e-6)


def test_stacks_that_are_converted_before_their_loop_are_in_the_model():
    specs = (256, 128), (4, 128, 256), (4, 256, 128)
    linear = tp.einsum("b k, k n -> b n")

    @tp.program("batch embed, layer embed mlp, layer mlp embed -> batch embed")
    def deep(x: Any, up: Any, down: Any) -> Any:
        return tp.stack(lambda x, u, d: x + linear(linear(x, u), d), 4)(x, up, down)

    graph = tp.trace(deep, *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in specs))
    assert ratios(graph, "v5e", (), False, 4, data=2, model=4) == pytest.approx([1.0] * 4, rel=1e-6)


def test_what_changes_have_in_common_comes_in_one_order_in_every_process():
    # Sets of texts have another order in each; what a search finds follows the order in which its model is written.
    graph, mesh = mlp(64, 64, 64), MeshShape.of(abstract(a=2, b=2, c=2))
    prices = Prices(lay(tp.machines.H100, mesh.axes), mesh, graph)
    for sizes in ((8, 16, 32), (16, 32, 64), (32, 64, 128), (64, 128, 256), (8, 32, 128), (16, 64, 256)):
        have = Layout(tuple(even_cut(size, (axis,), mesh) for size, axis in zip(sizes, "abc", strict=True)))
        found = prices.parts(TensorType(dict(zip("xyz", sizes, strict=True))), have, Want(Layout.whole(3), frozenset()))
        keys = [repr(key) for key, _ in found.common]
        assert len(keys) == 3 and keys == sorted(keys)
