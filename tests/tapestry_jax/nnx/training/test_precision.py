"""Mixed precision is that of Flax's layers, and the loss is scaled as in the field."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import tapestry_jax as tp

ROWS, FEATURES, HIDDEN = 8, 6, 10
TYPES = tp.TensorType({"batch": ROWS, "embed": FEATURES}), tp.TensorType({"batch": ROWS, "embed": FEATURES})


class Ours(tp.nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.up = tp.nnx.Linear(FEATURES, HIDDEN, dims=("embed", "mlp"), rngs=rngs)
        self.down = tp.nnx.Linear(HIDDEN, FEATURES, dims=("mlp", "embed"), rngs=rngs)

    def forward(self, x):
        return self.down(tp.Map(jnp.tanh)(self.up(x)))


def loss(model, x, y):
    off = tp.Map(lambda a, b: a.astype("float32") - b.astype("float32"))(model(x), y)
    return tp.fold(tp.aggregators.Mean(), "batch embed -> ()")(off * off)


def small_loss(model, x, y):
    return loss(model, x, y) * 1e-6


@functools.cache
def plan_of(function, stored):
    mesh = tp.mesh(data=2, model=2, devices=jax.devices()[:4])
    plan = tp.plan(tp.trace(function, Ours(), *TYPES), mesh, {"batch": "data", "mlp": "model"})
    return tp.fsdp(plan, "data", smallest=1) if stored else plan


def trainer_of(function=loss, rate=0.1, stored=None, **options):
    return tp.nnx.Trainer(function, Ours(), optax.sgd(rate), plan_of(function, stored), **options)


def batch(seed=0):
    x = np.random.default_rng(seed).normal(size=(ROWS, FEATURES)).astype("float32")
    return x, np.roll(x, 1, axis=1)


def parameters(trainer):
    return {".".join(map(str, at)): np.asarray(v.get_value()) for at, v in nnx.to_flat_state(trainer.state.params)}


class Theirs(nnx.Module):
    def __init__(self, up, down):
        rngs = nnx.Rngs(0)
        self.up = nnx.Linear(FEATURES, HIDDEN, dtype=up, rngs=rngs)
        self.down = nnx.Linear(HIDDEN, FEATURES, dtype=down, rngs=rngs)

    def __call__(self, x):
        return self.down(jnp.tanh(self.up(x)))


@pytest.mark.parametrize(
    ("precision", "theirs"),
    [
        (jnp.bfloat16, (jnp.bfloat16, jnp.bfloat16)),
        pytest.param({"": jnp.bfloat16, "down": None}, (jnp.bfloat16, jnp.float32), marks=pytest.mark.thorough),
        ({"up.*": jnp.bfloat16, "x": "bfloat16"}, (jnp.bfloat16, jnp.float32)),
    ],
)
def test_parameters_stay_and_the_program_computes_in_what_was_said(precision, theirs):
    trainer = trainer_of(precision=precision, stored=True)
    model = Theirs(*theirs)
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer, x, y):
        def value(model):
            # What a program takes is in its dtype: the target too, where everything is.
            near = y.astype(jnp.bfloat16).astype("float32") if "x" not in precision_names else y
            return ((model(x).astype("float32") - near) ** 2).mean()

        found, gradients = nnx.value_and_grad(value)(model)
        optimizer.update(model, gradients)
        return found

    precision_names = precision if isinstance(precision, dict) else {}
    for at in range(3):
        found, expected = float(trainer.step(*batch(at))["loss"]), float(step(model, optimizer, *batch(at)))
        # bfloat16 has 8 digits; sums over devices round in another order than those of one.
        assert found == pytest.approx(expected, rel=1e-2)
    kept = {".".join(map(str, at)): np.asarray(v.get_value()) for at, v in nnx.to_flat_state(nnx.state(model))}
    for name, array in parameters(trainer).items():
        assert array.dtype == np.float32
        np.testing.assert_allclose(array, kept[name], atol=5e-3)
    exact = trainer_of()
    for at in range(3):
        exact.step(*batch(at))
    off = max(np.abs(array - parameters(exact)[name]).max() for name, array in parameters(trainer).items())
    assert off > 1e-6, "something is rounded"


def test_parameters_are_gathered_in_the_dtype_of_the_program():
    sent = {}
    for precision in (None, jnp.bfloat16):
        trainer = trainer_of(precision=precision, stored=True)
        collectives = trainer.plan_of(*batch()).collectives(grad=True)
        sent[precision] = sum(each.bytes for each in collectives if each.kind == "all-gather")
    assert 0 < sent[jnp.bfloat16] == sent[None] / 2


def test_small_gradients_of_float16_are_those_of_float32():
    exact = trainer_of(small_loss, 1e5)
    scaled = trainer_of(small_loss, 1e5, precision=jnp.float16)
    lost = trainer_of(small_loss, 1e5, precision=jnp.float16, loss_scale=1.0)
    start = parameters(exact)
    for at in range(3):
        told = [each.step(*batch(at)) for each in (exact, scaled, lost)]
        assert float(told[1]["loss_scale"]) == 2**15 and "loss_scale" not in told[0]
        assert float(told[0]["grad_norm"]) == pytest.approx(float(told[1]["grad_norm"]), rel=2e-2)

    def error(trainer):
        moved = {name: array - start[name] for name, array in parameters(exact).items()}
        off = {name: array - parameters(exact)[name] for name, array in parameters(trainer).items()}
        return optax.tree.norm(off) / optax.tree.norm(moved)

    assert error(scaled) < 0.02 < 0.2 < error(lost)


def test_a_scale_that_is_too_large_shrinks_and_training_goes_on():
    trainer = trainer_of(precision=jnp.float16, loss_scale=2.0**24)
    told = [trainer.step(*batch(at)) for at in range(12)]
    skipped, scales = [bool(each["skipped"]) for each in told], [float(each["loss_scale"]) for each in told]
    count = skipped.index(False)
    assert 0 < count < 12 and not any(skipped[count:])
    assert scales == [2.0 ** (24 - min(at, count)) for at in range(12)]
    assert trainer.steps == 12 and int(trainer.state.step) == 12
    alone = trainer_of(precision=jnp.float16)
    for at in range(count, 12):
        alone.step(*batch(at))
    for name, array in parameters(trainer).items():
        np.testing.assert_allclose(array, parameters(alone)[name], atol=2e-3)


def test_a_loss_that_is_no_number_stops_scaled_training_too():
    trainer = trainer_of(precision=jnp.float16)
    bad = np.full((ROWS, FEATURES), np.inf, "float32"), batch()[1]
    trainer.step(*bad)
    with pytest.raises(tp.nnx.TrainingError, match="step 1: the loss is not finite"):
        _ = trainer.state
    # Where nothing is looked at the step is left out, as one whose gradients are too large.
    silent = trainer_of(precision=jnp.float16, nan=None)
    assert bool(silent.step(*bad)["skipped"]) and not bool(silent.step(*batch())["skipped"])
    assert silent.steps == int(silent.state.step) == 2 and silent.skipped == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"precision": "int8"}, "precision= of a trainer is no dtype of floats\n  got 'int8'"),
        ({"precision": {"up": 3}}, "precision['up'] of a trainer is no dtype of floats"),
        ({"precision": {"gone": "bfloat16", "up.k": None}}, "nothing is at `gone`, `up.k`"),
        ({"loss_scale": 0.5}, "loss_scale= of a trainer is below 1"),
    ],
)
def test_precision_that_cannot_be(options, said):
    with pytest.raises(tp.nnx.TrainingError) as error:
        trainer_of(**options)
    assert said in str(error.value)


def test_running_statistics_keep_their_digits():
    norm = tp.nnx.BatchNorm(FEATURES, dims=("embed",), rngs=nnx.Rngs(0))

    def told(model, x):
        y = model(x)
        return tp.nnx.mean_squared_error(y, y * 0)

    plan = tp.plan(tp.trace(told, norm, TYPES[0]), tp.mesh(jax.devices()[:2], data=2), {"batch": "data"})
    trainer = tp.nnx.Trainer(told, norm, optax.sgd(0.1), plan, precision=jnp.bfloat16)
    x = batch()[0]
    trainer.step(x)
    assert trainer.state.rest["mean"].get_value().dtype == jnp.float32
    np.testing.assert_allclose(trainer.model.mean[...], 0.01 * x.mean(0), atol=2e-4)
