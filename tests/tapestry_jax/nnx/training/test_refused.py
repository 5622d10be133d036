"""What a trainer cannot be made of, and what a loss may not return."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import tapestry_jax as tp

MODEL = tp.nnx.Linear(4, 3, rngs=nnx.Rngs(0))
TYPES = tp.TensorType({"batch": 4, "embed": 4}), tp.TensorType({"batch": 4}, jnp.int32)


def loss(model, x, labels):
    return tp.nnx.cross_entropy(model(x), labels)


def plan_of(function=loss, model=MODEL, types=TYPES):
    return tp.plan(tp.trace(function, model, *types), tp.mesh(jax.devices()[:1], data=1), {})


PLAN = plan_of()


def refused(*args, **options):
    with pytest.raises(tp.nnx.TrainingError) as error:
        tp.nnx.Trainer(*args, **options)
    return str(error.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"clip": 0.0}, "clip= of a trainer is no norm\n  got 0.0"),
        ({"clip": "1"}, "clip= of a trainer"),
        ({"ema": 1.0}, "ema= of a trainer is no share\n  got 1.0"),
        ({"nan": "ignore"}, "nan= of a trainer is not what it should be\n  got 'ignore'"),
        ({"microbatches": 0}, "microbatches= of a trainer"),
        (
            {"microbatches": 5},
            "microbatches=5 of a trainer are more than rows\n  a device has 4 of the 4 rows of `batch`",
        ),
        ({"wrt": 3}, "wrt= of a trainer is not what it should be\n  expected a filter of flax.nnx\n  got int: 3"),
        ({"checkpoint": 3}, "checkpoint= of a trainer is no path\n  expected the path of a folder\n  got int: 3"),
        ({"checkpoint": ""}, "checkpoint= of a trainer is no path\n  expected the path of a folder\n  got str: ''"),
        ({"wrt": nnx.BatchStat}, "wrt=BatchStat of a trainer names nothing that can be trained\n  got no variable"),
    ],
)
def test_options_that_cannot_be(options, said):
    assert said in refused(loss, MODEL, optax.sgd(0.1), PLAN, **options)


def test_a_loss_that_is_no_function():
    assert "loss= of a trainer is not what it should be\n  expected a function" in refused(
        3, MODEL, optax.sgd(0.1), PLAN
    )


def test_what_fit_evaluate_and_plot_cannot_do_is_told(tmp_path):
    trainer = tp.nnx.Trainer(loss, MODEL, optax.sgd(0.1), PLAN)
    batch = np.ones((4, 4), np.float32), np.zeros(4, np.int32)

    def told(call):
        with pytest.raises(tp.nnx.TrainingError) as error:
            call()
        return str(error.value)

    assert "report= of trainer.fit is not what" in told(lambda: trainer.fit([batch], report="print"))
    for wrong in (3, {"accuracy": "high"}):
        said = told(lambda wrong=wrong: trainer.fit([batch], every=1, report=lambda *_: wrong))
        assert "report= of trainer.fit returns no metrics\n  expected numbers by name, or None" in said
    trainer.fit([batch], every=1, report=lambda *_: {"share": np.float32(0.5)})
    assert trainer.history[-1]["share"] == 0.5
    said = "trainer.evaluate was given no batches\n  got int: 3\n  Pass tuples of arrays one after the other."
    assert told(lambda: trainer.evaluate(3)) == said
    assert "no picture can be written to" in told(lambda: trainer.plot(tmp_path / "loss.nothing"))
    assert "no picture can be written to" in told(lambda: trainer.plot(tmp_path / "there" / "loss.png"))
    assert "trainer.plot was given no path\n  got int: 3" in told(lambda: trainer.plot(3))
    assert "levels= of trainer.plot is not what" in told(lambda: trainer.plot(tmp_path / "loss.png", levels=[1.0]))


def test_an_optimizer_that_is_none():
    assert "a trainer was given no optimizer" in refused(loss, MODEL, optax.sgd, PLAN)


@pytest.mark.parametrize(
    ("optimizer", "said"),
    [
        (optax.lbfgs(), "TypeError: "),
        (optax.contrib.sam(optax.sgd(0.1), optax.sgd(0.1)), "TypeError: "),
        (optax.lookahead(optax.sgd(0.1), 5, 0.5), "AttributeError: No attribute 'fast'"),
        (optax.masked(optax.sgd(0.1), {"kernel": True}), "ValueError: pytree structure error"),
    ],
)
def test_an_optimizer_that_cannot_update_these_parameters(optimizer, said):
    told = refused(loss, MODEL, optimizer, PLAN)
    assert told.startswith(f"the optimizer of a trainer cannot update these parameters\n  {said}")


def test_a_plan_that_is_none_or_has_no_devices():
    assert "a trainer was given no plan\n  got Graph" in refused(loss, MODEL, optax.sgd(0.1), PLAN.graph)
    abstract = tp.plan(PLAN.graph, jax.sharding.AbstractMesh((2,), ("data",)), {"batch": "data"})
    with pytest.raises(tp.MeshError):
        tp.nnx.Trainer(loss, MODEL, optax.sgd(0.1), abstract)


def test_microbatches_said_twice():
    plan = tp.plan(PLAN.graph, PLAN.mesh, {"batch": tp.chunks(2)})
    said = refused(loss, MODEL, optax.sgd(0.1), plan, microbatches=2)
    assert "the plan takes `batch` in chunks already\n  got chunks(2)" in said


def test_a_plan_of_another_model_tells_all_differences():
    other = tp.nnx.Sequential(tp.nnx.Linear(4, 3, rngs=nnx.Rngs(0)))
    said = refused(loss, other, optax.sgd(0.1), PLAN)
    assert said.count("is not in the model") == 2 and said.count("is not in the plan") == 2
    said = refused(loss, tp.nnx.Linear(4, 5, rngs=nnx.Rngs(0)), optax.sgd(0.1), PLAN)
    assert "`kernel` is float32(4, 3) in the plan, float32(4, 5) in the model" in said and "`bias`" in said
    types = tp.TensorType({"a": 2}), tp.TensorType({"a": 2})
    no_model = tp.plan(tp.trace(lambda x, y: tp.fold(tp.aggregators.Sum(), "a -> ()")(x * y), *types), PLAN.mesh, {})
    assert "it takes no model first" in refused(loss, MODEL, optax.sgd(0.1), no_model)
    assert "got dict" in refused(loss, {}, optax.sgd(0.1), PLAN)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (lambda model, x, y: model(x), "the loss returns what cannot be trained on"),
        (
            lambda model, x, y: (loss(model, x, y), loss(model, x, y)),
            "expected a scalar of floats, or it and a dictionary",
        ),
        (
            lambda model, x, y: (loss(model, x, y), {"logits": model(x)}),
            "`logits`, which the loss returns, is no metric",
        ),
        (
            lambda model, x, y: (loss(model, x, y), {"loss": loss(model, x, y)}),
            "`loss`, which the loss returns, is no metric",
        ),
    ],
)
def test_what_a_loss_may_not_return(returned, said):
    assert said in refused(returned, MODEL, optax.sgd(0.1), plan_of(returned))


def test_a_parameter_that_is_trained_is_not_written():
    class Counting(tp.nnx.Module):
        def __init__(self):
            self.seen = nnx.Param(jnp.float32(0), dims=())

        def forward(self, x):
            self.seen[...] = self.seen[...] + 1
            return x

    def told(model, x):
        return tp.nnx.mean_squared_error(model(x), x)

    said = refused(told, Counting(), optax.sgd(0.1), plan_of(told, Counting(), TYPES[:1]))
    assert "a model that is trained cannot write to `seen`\n  it is trained: the optimizer changes it" in said


def test_batches_that_do_not_fit():
    trainer = tp.nnx.Trainer(loss, MODEL, optax.sgd(0.1), PLAN)
    x, labels = np.ones((4, 4), "float32"), np.zeros(4, "int32")
    for args, named, said in [
        ((x,), {}, "`labels` is missing"),
        ((x, labels, x), {}, "3 were given"),
        ((x,), {"x": x, "y": x}, "no argument is called `y`\n  `x` is given twice\n  `labels` is missing"),
    ]:
        with pytest.raises(tp.nnx.TrainingError) as error:
            trainer.step(*args, **named)
        assert "a batch has 2 arguments: x, labels" in str(error.value) and said in str(error.value)
    with pytest.raises(tp.TapestryError):
        trainer.step(x.astype("int32"), labels)
    with pytest.raises(tp.TapestryError):
        trainer.step(np.ones((4, 5), "float32"), labels)
    with pytest.raises(tp.nnx.TrainingError, match="a function of the step, and no last step"):
        trainer.fit(lambda step: (x, labels))
    with pytest.raises(tp.nnx.TrainingError, match=r"cannot call its function of the step\n.* too many positional"):
        trainer.fit(lambda: (x, labels), steps=2)
    with pytest.raises(tp.nnx.TrainingError, match="was given no batches"):
        trainer.fit(3)
    for none in (3, lambda step: (x, labels)):
        with pytest.raises(tp.nnx.TrainingError, match=r"trainer.evaluate was given no batches\n  got (int|function)"):
            trainer.evaluate(none)
    assert trainer.steps == 0
    assert np.isfinite(float(trainer.step(x, labels=labels)["loss"]))
    assert trainer.fit([]) == {} and trainer.fit([{"labels": labels, "x": x}])["loss"] > 0
    assert "loss" in trainer.evaluate([[x, labels]])
