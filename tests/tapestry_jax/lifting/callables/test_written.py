"""What models write in training: batch statistics and counts of random numbers, as results of the graph."""

from __future__ import annotations

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp
from tapestry_jax.lifting import lift
from tapestry_jax.lifting.callables.passed import origin
from tapestry_jax.lifting.callables.written import modules_of
from tests.tapestry_jax.lifting.agree import close

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)


class Regularised(nnx.Module):
    """It writes the statistics of its batches and counts the keys that it draws."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.layer, self.norm = nnx.Linear(4, 6, rngs=rngs), nnx.BatchNorm(6, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.drop(nnx.relu(self.norm(self.layer(x))))

    def norms(self, x: Any) -> Any:
        return self.norm(self.layer(x), use_running_average=True)


def test_statistics_and_counts_are_a_second_result_the_same_on_every_mesh() -> None:
    graph = lift(Regularised(nnx.Rngs(0)), X, names="batch _", state=True)
    assert graph.opaque() == ()
    assert {label for label, _ in graph.outputs} == {
        "y/0",
        "y/1/norm/mean",
        "y/1/norm/var",
        "y/1/drop/rngs/count",
    }
    plan = tp.plan(graph, tp.mesh(data=2, model=2), {"batch": "data"})
    plan.verify()
    assert [collective.kind for collective in plan.collectives()] == ["all-reduce"] * 2
    run, theirs, ours = jax.jit(plan.compile()), Regularised(nnx.Rngs(0)), Regularised(nnx.Rngs(0))
    for _ in range(2):  # the second turn draws other bits, by the count that the first one wrote
        y, written = run(nnx.state(ours), X)
        nnx.update(ours, written)
        close(y, theirs(jnp.asarray(X)), 2e-5, "result")
    kept = (nnx.BatchStat, nnx.RngCount)
    close(nnx.to_pure_dict(nnx.state(ours, kept)), nnx.to_pure_dict(nnx.state(theirs, kept)), 2e-5, "written")


def test_statistics_see_no_padding_of_a_batch_that_divides_unevenly() -> None:
    rows, model, theirs = X[:7] + 3, Regularised(nnx.Rngs(0)), Regularised(nnx.Rngs(0))
    graph = lift(model, rows, names="batch _", state=True)
    y, written = tp.plan(graph, tp.mesh(data=4), {"batch": ("data", tp.chunks(2))}).compile()(nnx.state(model), rows)
    close(y, theirs(jnp.asarray(rows)), 2e-5, "result")
    close(nnx.to_pure_dict(written)["norm"], nnx.to_pure_dict(nnx.state(theirs.norm, nnx.BatchStat)), 2e-5, "written")


def test_what_is_written_to_modules_among_the_arguments_is_told_by_their_names() -> None:
    def loss(model: Any, others: Any, x: Any) -> Any:
        return (others["norm"](model(x)) ** 2).mean()

    def norm() -> Any:
        return {"norm": nnx.BatchNorm(6, rngs=nnx.Rngs(1))}

    graph = lift(loss, Regularised(nnx.Rngs(0)), norm(), X, state=True)
    model, others = Regularised(nnx.Rngs(0)), norm()
    value, written = graph(nnx.state(model), jax.tree.map(lambda leaf: leaf, others), X)
    assert set(written) == {"model", "others/norm"}
    close(value, loss(model, others, jnp.asarray(X)), 2e-5, "loss")
    close(written["others/norm"]["var"][...], others["norm"].var[...], 2e-5, "variance")


def test_a_linen_model_gives_the_collections_that_it_writes() -> None:
    class Normed(nn.Module):
        @nn.compact
        def __call__(self, x: Any, train: bool = True) -> Any:
            return nn.BatchNorm(use_running_average=not train)(nn.Dense(3)(x))

    variables = Normed().init(jax.random.key(0), X)
    graph = lift(Normed(), variables, X, state=True, names={"x": "batch _"})
    plan = tp.plan(graph, tp.mesh(data=2), {"batch": "data"})
    close(plan.compile()(variables, X), Normed().apply(variables, X, mutable=["batch_stats"]), 2e-5, "planned")
    evaluated = lift(partial(Normed(), train=False), variables, X)
    close(evaluated(variables, X), Normed().apply(variables, X, train=False), 2e-5, "evaluated")
    with pytest.raises(tp.GraphError) as caught:
        lift(Normed(), variables, X)
    told = str(caught.value).splitlines()
    assert told[0] == "`Normed` writes to a collection that is not mutable"
    assert told[2].startswith("  Take what it writes as a second result: tp.lift(..., state=True)")


def test_a_count_may_be_lost_where_no_result_depends_on_it() -> None:
    model = nnx.RNN(nnx.LSTMCell(4, 3, rngs=nnx.Rngs(0)))
    frames = np.ones((2, 5, 4), np.float32)
    close(lift(model, frames)(nnx.state(model), frames), model(jnp.asarray(frames)), 2e-5, "recurrent")
    with pytest.raises(tp.GraphError) as caught:
        lift(nnx.Dropout(0.5, rngs=nnx.Rngs(0)), X)
    assert str(caught.value) == (
        "the call writes `rngs.count` of a module, which a graph would lose\n  got Dropout\n"
        "  Take it as a second result, tp.lift(..., state=True); or call model.eval() first."
    )


def test_a_parameter_that_is_normalised_in_its_place_is_written_in_evaluation_too() -> None:
    model = nnx.WeightNorm(nnx.Linear(4, 3, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(0))
    model.eval()
    with pytest.raises(tp.GraphError) as caught:
        lift(model, X)
    assert str(caught.value) == (
        "the call writes `layer_instance.kernel` of a module, which a graph would lose\n  got WeightNorm\n"
        "  Take it as a second result, tp.lift(..., state=True)."
    )
    result, written = lift(model, X, state=True)(nnx.state(model), X)
    close(result, model(jnp.asarray(X)), 2e-6, "normalised")
    close(written["layer_instance"]["kernel"][...], model.layer_instance.kernel[...], 2e-6, "kernel")


def test_methods_and_keywords_of_a_module_leave_its_arrays_inputs() -> None:
    model = Regularised(nnx.Rngs(0))
    graph = lift(model.norms, X)
    assert "params/layer/kernel" in {node.name for node in graph.inputs}
    close(graph(nnx.state(model), X), model.norms(jnp.asarray(X)), 2e-5, "method")
    told = lift(partial(nnx.BatchNorm(4, rngs=nnx.Rngs(0)), use_running_average=True), X)
    assert "params/scale" in {node.name for node in told.inputs}


def test_state_of_what_has_no_module_is_refused() -> None:
    with pytest.raises(tp.GraphError, match=r"state=True of tp\.lift: `tanh` has no module to write to\n"):
        lift(jnp.tanh, X, state=True)


def test_modules_that_a_call_can_write_are_found_wherever_they_are() -> None:
    norm = nnx.BatchNorm(4, rngs=nnx.Rngs(0))
    assert list(modules_of(norm, [X, {"a": [norm]}], ["x", "held"])) == ["params", "held/a/0"]
    assert modules_of(jnp.tanh, [X], ["x"]) == {}


class Transformed(nnx.Module):
    """Transformations of nnx put back the variables that they were given."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.layers = nnx.vmap(lambda rngs: nnx.Linear(4, 4, rngs=rngs))(rngs.split(3))
        self.last = Regularised(rngs)

    def __call__(self, x: Any) -> Any:
        x = nnx.scan(lambda x, layer: layer(x), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(x, self.layers)
        return nnx.remat(lambda model, x: model(x))(self.last, nnx.jit(jnp.tanh)(x))


def test_what_transformations_put_back_was_not_written() -> None:
    graph = lift(Transformed(nnx.Rngs(0)), X, state=True)
    wanted = {"y/0", "y/1/last/norm/mean", "y/1/last/norm/var", "y/1/last/drop/rngs/count"}
    assert {label for label, _ in graph.outputs} == wanted
    model = Transformed(nnx.Rngs(0))
    close(graph(nnx.state(model), X)[0], model(jnp.asarray(X)), 2e-5, "result")
    model.eval()
    close(lift(model, X)(nnx.state(model), X), model(jnp.asarray(X)), 2e-5, "evaluated")
    model.train()
    with pytest.raises(tp.GraphError, match=r"the call writes `last\.norm\.mean` of a module"):
        lift(model, X)


def test_inputs_are_found_behind_calls_and_loops() -> None:
    def program(x: Any, y: Any, z: Any) -> Any:
        turn = lambda carry, row: ((carry[0], carry[1] * 2), (row, row + 1))  # noqa: E731
        (kept, moved), (rows, others) = jax.lax.scan(turn, (x, y), z)
        return jax.checkpoint(lambda a, b: (b, a + 1))(moved, kept), rows, others, jax.jit(lambda a: a)(y)

    jaxpr = jax.make_jaxpr(program)(1.0, 2.0, X).jaxpr
    assert [origin(jaxpr, result) for result in jaxpr.outvars] == [0, None, 2, None, 1]


def test_what_changes_places_in_a_loop_is_not_passed_on() -> None:
    def program(x: Any, y: Any, z: Any) -> Any:
        return jax.lax.scan(lambda carry, row: ((carry[1], carry[0]), (carry[0], row)), (x, y), z)

    jaxpr = jax.make_jaxpr(program)(1.0, 2.0, X).jaxpr
    assert [origin(jaxpr, result) for result in jaxpr.outvars] == [None, None, None, 2]
