"""Steps of training are those of Flax and optax on one device, on every mesh."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import tapestry_jax as tp
from tests.thoroughly import but, thoroughly

ROWS, FEATURES, HIDDEN, CLASSES = 8, 6, 10, 5
STEPS = 20


class Ours(tp.nnx.Module):
    def __init__(self, rngs):
        self.up = tp.nnx.Linear(FEATURES, HIDDEN, dims=("embed", "mlp"), rngs=rngs)
        self.down = tp.nnx.Linear(HIDDEN, CLASSES, dims=("mlp", "classes"), rngs=rngs)

    def forward(self, x):
        return self.down(tp.Map(jnp.tanh)(self.up(x)))


class Theirs(nnx.Module):
    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(FEATURES, HIDDEN, rngs=rngs), nnx.Linear(HIDDEN, CLASSES, rngs=rngs)

    def __call__(self, x):
        return self.down(jnp.tanh(self.up(x)))


def loss(model, x, labels):
    return tp.nnx.cross_entropy(model(x), labels)


def plain_loss(model, x, labels):
    return optax.softmax_cross_entropy_with_integer_labels(model(x), labels).mean()


TYPES = tp.TensorType({"batch": ROWS, "embed": FEATURES}), tp.TensorType({"batch": ROWS}, jnp.int32)
MESHES = {
    "one": ({"data": 1}, {}),
    "2x4": ({"data": 2, "model": 4}, {"batch": "data", "mlp": "model"}),
    "8": ({"data": 8}, {"batch": "data"}),
}


def mesh_of(axes):
    return tp.mesh(jax.devices()[: int(np.prod(list(axes.values())))], **axes)


@functools.cache
def plan_of(where="2x4", **options):
    axes, entries = MESHES[where]
    return tp.plan(tp.trace(loss, Ours(nnx.Rngs(0)), *TYPES), mesh_of(axes), entries, **options)


def trainer_of(where="2x4", optimizer=None, **options):
    return tp.nnx.Trainer(loss, Ours(nnx.Rngs(0)), optimizer or optax.adamw(1e-2), plan_of(where), **options)


def batches(count=STEPS, rows=ROWS, seed=0):
    random = np.random.default_rng(seed)
    drawn = (random.normal(size=(rows, FEATURES)).astype("float32") for _ in range(count))
    return [(x, np.argmax(x[:, :CLASSES], axis=1).astype("int32")) for x in drawn]


def parameters(model):
    return {".".join(map(str, path)): np.asarray(v.get_value()) for path, v in nnx.to_flat_state(nnx.state(model))}


def by_flax(optimizer, given, value=plain_loss):
    """Losses and parameters of Flax and optax alone, on one device."""
    model = Theirs(nnx.Rngs(0))
    assert all(np.array_equal(a, parameters(Ours(nnx.Rngs(0)))[name]) for name, a in parameters(model).items())
    known = nnx.Optimizer(model, optimizer, wrt=nnx.Param)

    @nnx.jit
    def step(model, known, batch):
        found, gradients = nnx.value_and_grad(value)(model, *batch)
        known.update(model, gradients)
        return found

    return [float(step(model, known, batch)) for batch in given], parameters(model)


@pytest.fixture(scope="module")
def expected():
    return by_flax(optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(1e-2)), batches())


# Of one device, and of a row of them, less is asked below.
@pytest.mark.parametrize("where", but(MESHES, "one", "8"))
def test_twenty_steps_are_those_of_flax_and_optax(where, expected):
    trainer = trainer_of(where, clip=0.5)
    found = [trainer.step(*batch) for batch in batches()]
    np.testing.assert_allclose([float(told["loss"]) for told in found], expected[0], rtol=2e-6)
    assert max(float(told["grad_norm"]) for told in found) > 0.5, "something is clipped"
    for name, array in parameters(trainer.model).items():
        np.testing.assert_allclose(array, expected[1][name], atol=1e-5, err_msg=name)


def test_microbatches_are_the_whole_batch(expected):
    trainer = trainer_of(clip=0.5, microbatches=3)
    assert "chunks(size=2)" in [str(item) for _, items in trainer.plan.entries for item in items]
    found = [float(trainer.step(*batch)["loss"]) for batch in batches(6)]
    np.testing.assert_allclose(found, expected[0][:6], rtol=2e-6)
    # Fewer rows than one microbatch has.
    x, labels = batches(1, rows=1)[0]
    np.testing.assert_allclose(
        float(trainer.step(x, labels)["loss"]), float(plain_loss(_theirs(trainer.model), x, labels)), rtol=1e-1
    )


def _theirs(model):
    made = Theirs(nnx.Rngs(0))
    nnx.update(made, nnx.state(model))
    return made


def test_what_an_optimizer_keeps_of_a_parameter_lies_as_the_parameter():
    plan = tp.fsdp(plan_of(), "data", smallest=1)
    optimizer = optax.chain(
        optax.masked(optax.adam(1e-2), lambda p: jax.tree.map(lambda x: x.ndim == 2, p)), optax.ema(0.9)
    )
    trainer = tp.nnx.Trainer(loss, Ours(nnx.Rngs(0)), optimizer, plan, ema=0.9)
    kept = {
        jax.tree_util.keystr(path): leaf.sharding.spec
        for path, leaf in jax.tree_util.tree_leaves_with_path((trainer.state.optimizer, trainer.state.ema))
    }
    at = {
        jax.tree_util.keystr(path): leaf.sharding.spec
        for path, leaf in jax.tree_util.tree_leaves_with_path(trainer.state.params)
    }
    assert len({*at.values()}) > 1
    following = {path: [spec for end, spec in at.items() if path.endswith(end)] for path in kept}
    assert sum(map(len, following.values())) == 2 * 2 + 4 + 4
    assert all(kept[path] == specs[0] if specs else not any(kept[path]) for path, specs in following.items())


# Factored moments are the same on every mesh in lowering/test_same_training.py.
@pytest.mark.thorough
def test_an_optimizer_of_factored_moments():
    optimizer = optax.adafactor(1e-2, min_dim_size_to_factor=4)
    expected, _ = by_flax(optimizer, batches(3))
    trainer = trainer_of(optimizer=optimizer)
    np.testing.assert_allclose([float(trainer.step(*batch)["loss"]) for batch in batches(3)], expected, rtol=2e-6)


def test_the_mean_of_parameters_is_that_of_optax():
    trainer, seen = trainer_of("8", ema=0.9), []
    kept = expected = parameters(trainer.model)
    for batch in batches(3):
        trainer.step(*batch)
        seen.append(parameters(trainer.model))
    for now in seen:
        expected = {name: optax.incremental_update(now[name], expected[name], 0.1) for name in now}
    found = {".".join(map(str, path)): v.get_value() for path, v in nnx.to_flat_state(trainer.state.ema)}
    for name, mean in expected.items():
        np.testing.assert_allclose(found[name], mean, rtol=1e-5, atol=1e-7)
        assert not np.allclose(mean, kept[name], atol=1e-4)


def test_the_model_that_was_given_is_not_changed_nor_lost():
    model = Ours(nnx.Rngs(0))
    before = parameters(model)
    plan = plan_of("one")
    trainer = tp.nnx.Trainer(loss, model, optax.sgd(0.1), plan, nan=None)
    trainer.step(*batches(1)[0])
    kept = trainer.model
    trainer.step(*batches(1)[0])
    assert int(trainer.state.step) == 2, "steps are counted where nothing is looked at, too"
    assert all(np.array_equal(array, before[name]) for name, array in parameters(model).items())
    assert not np.array_equal(parameters(kept)["up.kernel"], before["up.kernel"])


def test_a_lifted_model_of_flax_with_written_state_is_trained(mesh2x4):
    class Normal(nnx.Module):
        def __init__(self, rngs):
            self.up, self.norm = nnx.Linear(FEATURES, HIDDEN, rngs=rngs), nnx.BatchNorm(HIDDEN, rngs=rngs)
            self.drop, self.down = nnx.Dropout(0.3, rngs=rngs), nnx.Linear(HIDDEN, CLASSES, rngs=rngs)

        def __call__(self, x):
            return self.down(self.drop(jnp.tanh(self.norm(self.up(x)))))

    def told(model, x, labels):
        logits = model(x)
        one = optax.softmax_cross_entropy_with_integer_labels
        value = jax.lax.map(lambda row: one(*row), (logits, labels)).mean()
        # Turns that take different branches stay a loop, beside one that is a map.
        right = jax.lax.map(
            lambda at: jax.lax.cond(at, jnp.ones_like, jnp.zeros_like, 0.0), logits.argmax(-1) == labels
        )
        return value, {"accuracy": right.mean()}

    model, other = Normal(nnx.Rngs(0)), Normal(nnx.Rngs(0))
    graph = tp.lift(told, model, *TYPES, state=True, maps=True)
    trainer = tp.nnx.Trainer(told, model, optax.sgd(0.1), tp.plan(graph, mesh2x4, {"batch": "data"}))
    optimizer = nnx.Optimizer(other, optax.sgd(0.1), wrt=nnx.Param)

    @nnx.jit
    def by_hand(other, optimizer, x, labels):
        found, gradients = nnx.value_and_grad(told, has_aux=True)(other, x, labels)
        optimizer.update(other, gradients)
        return found

    # Batches of other sizes, of our layers, are planned below.
    several = [*batches(2), *(batches(2, rows=5) if thoroughly() else ())]
    for x, labels in several:
        found = trainer.step(x, labels)
        value, metrics = by_hand(other, optimizer, x, labels)
        np.testing.assert_allclose(float(found["loss"]), float(value), rtol=1e-4)
        np.testing.assert_allclose(float(found["accuracy"]), float(metrics["accuracy"]), rtol=1e-5)
    np.testing.assert_allclose(trainer.model.norm.mean[...], other.norm.mean[...], rtol=1e-4, atol=1e-6)
    assert int(trainer.model.drop.rngs.count[...]) == len(several)
    last = trainer.model
    last.eval()
    x, labels = several[-1]
    assert trainer.evaluate([(x, labels)])["loss"] == pytest.approx(float(told(last, x, labels)[0]), rel=1e-4)


def test_batches_of_other_sizes_are_planned_once_each_and_their_means_add_up():
    counted = []

    def counting(model, x, labels):
        counted.append(x.shape[0])
        value = loss(model, x, labels)
        return value, {"twice": value + value}

    plan = tp.plan(tp.trace(counting, Ours(nnx.Rngs(0)), *TYPES), *_on("2x4"))
    trainer = tp.nnx.Trainer(counting, Ours(nnx.Rngs(0)), optax.sgd(0.0), plan)
    (x, labels), sizes = batches(1, rows=21)[0], (8, 8, 5)
    parts = [(x[at : at + n], labels[at : at + n]) for at, n in zip(np.cumsum((0, *sizes)), sizes, strict=False)]
    whole = float(plain_loss(_theirs(trainer.model), x, labels))
    for found in (trainer.fit(parts), trainer.fit(parts), trainer.evaluate(parts)):
        assert found["loss"] == pytest.approx(whole, rel=1e-6)
        assert found["twice"] == pytest.approx(2 * whole, rel=1e-6)
    assert counted == [8, 5] and trainer.steps == 6


def _on(where):
    axes, entries = MESHES[where]
    return mesh_of(axes), entries


def test_fit_stops_at_a_step_and_reports(capsys):
    trainer, told = trainer_of("one"), []
    trainer.fit(
        lambda step: batches(1, seed=step)[0], steps=5, every=2, report=lambda step, found: told.append((step, found))
    )
    assert [step for step, _ in told] == [2, 4, 5] and trainer.steps == 5
    other = trainer_of("one")
    alone = [float(other.step(*batches(1, seed=step)[0])["loss"]) for step in range(5)]
    assert [found["loss"] for _, found in told] == pytest.approx([np.mean(alone[:2]), np.mean(alone[2:4]), alone[4]])
    trainer.fit(lambda step: batches(1, seed=step)[0], steps=5)
    assert trainer.steps == 5 and "loss" in trainer.fit(batches(2)) and trainer.steps == 7


def test_totals_and_counts_are_metrics_of_all_batches():
    def told(model, x, labels):
        hits = tp.Map(lambda a, b: (jnp.argmax(a, -1) == b).astype(jnp.float32), "... [c], ... -> ...")(
            model(x), labels
        )
        return loss(model, x, labels), {
            "right": (
                tp.fold(tp.aggregators.Sum(), "batch -> ()")(hits),
                tp.fold(tp.aggregators.Sum(), "batch -> ()")(hits * 0 + 1),
            )
        }

    plan = tp.plan(tp.trace(told, Ours(nnx.Rngs(0)), *TYPES), *_on("2x4"))
    trainer = tp.nnx.Trainer(told, Ours(nnx.Rngs(0)), optax.sgd(0.0), plan)
    parts = [*batches(1), *batches(1, rows=3, seed=1)]
    logits = [(_theirs(trainer.model)(x).argmax(-1), labels) for x, labels in parts]
    right = np.concatenate([np.asarray(a == b) for a, b in logits])
    assert trainer.evaluate(parts)["right"] == pytest.approx(right.mean())


# Steps that are left out are those of a scale that is too large, in test_precision.py.
@pytest.mark.parametrize("stops", but([True, False], False))
def test_a_step_that_gives_no_number_is_named_and_leaves_no_trace(stops):
    trainer = trainer_of("2x4", nan="stop" if stops else "skip", ema=0.5)
    good, (x, labels) = batches(3), batches(1)[0]
    trainer.step(*good[0])
    before = jax.tree.map(np.asarray, nnx.to_pure_dict(trainer.state.params))
    bad = np.where(np.arange(ROWS)[:, None] == 3, np.nan, x).astype("float32"), labels
    found = trainer.step(*bad)
    assert bool(found["skipped"])
    if stops:
        with pytest.raises(tp.nnx.TrainingError) as error:
            trainer.step(*good[1])
        assert str(error.value).startswith("step 2: the loss is not finite\n  `x` of the batch is nan at [3, 0]\n")
        assert "\n  the first gradient that is not is by `down.bias`\n" in str(error.value)
        assert "Mend the batches, or leave such steps out" in str(error.value)
        assert "the trainer stands before step 2" in str(error.value) and trainer.steps == 1
        assert int(trainer.state.step) == 1
    else:
        assert int(trainer.state.step) == 2
        (skipped,) = trainer.skipped
        assert skipped.startswith(
            "step 2: the loss is not finite; `x` of the batch is nan at [3, 0]; the first gradient"
        )
    jax.tree.map(np.testing.assert_array_equal, nnx.to_pure_dict(trainer.state.params), before)
    again = trainer_of("2x4")
    again.step(*good[0])
    assert float(trainer.step(*good[2])["loss"]) == float(again.step(*good[2])["loss"])
    assert trainer.state is not None


def test_a_gradient_and_an_update_that_are_no_numbers_are_named():
    def rooted(model, x, labels):
        return tp.Map(jnp.sqrt)(loss(model, x, labels) * 0.0)

    plan = tp.plan(tp.trace(rooted, Ours(nnx.Rngs(0)), *TYPES), *_on("one"))
    trainer = tp.nnx.Trainer(rooted, Ours(nnx.Rngs(0)), optax.sgd(0.1), plan)
    trainer.step(*batches(1)[0])
    with pytest.raises(tp.nnx.TrainingError, match=r"step 1: the gradient by `down\.bias` is not finite"):
        _ = trainer.state
    trainer = trainer_of("one", optax.sgd(lambda step: jnp.where(step == 1, jnp.inf, 0.1)))
    trainer.step(*batches(1)[0])
    trainer.step(*batches(1)[0])
    with pytest.raises(tp.nnx.TrainingError, match=r"step 2: the update of `down\.bias` is not finite"):
        _ = trainer.model


class WithNorm(tp.nnx.Module):
    def __init__(self, rngs):
        self.up, self.norm = (
            tp.nnx.Linear(FEATURES, HIDDEN, dims=("embed", "mlp"), rngs=rngs),
            tp.nnx.BatchNorm(HIDDEN, dims=("mlp",), rngs=rngs),
        )
        self.drop, self.down = (
            tp.nnx.Dropout(0.3, rngs=rngs),
            tp.nnx.Linear(HIDDEN, CLASSES, dims=("mlp", "classes"), rngs=rngs),
        )

    def forward(self, x, step):
        return self.down(self.drop(self.norm(self.up(x)), step))


def test_running_statistics_are_written_and_the_step_is_given_to_dropout():
    def told(model, x, labels, step):
        value = tp.nnx.cross_entropy(model(x, step), labels)
        return value, {"twice": 2 * value}

    step_type = tp.TensorType({}, jnp.int32)
    losses = {}
    for where in ("one", "2x4"):
        model = WithNorm(nnx.Rngs(0))
        plan = tp.plan(tp.trace(told, model, *TYPES, step_type), *_on(where))
        # The first step moves the parameters, and the others leave them.
        trainer = tp.nnx.Trainer(told, model, optax.sgd(lambda step: jnp.where(step == 0, 0.1, 0.0)), plan)
        x, labels = batches(1)[0]
        losses[where] = [float(trainer.step(x, labels)["loss"])]
        mean = np.asarray(x @ np.asarray(model.up.kernel[...]) + np.asarray(model.up.bias[...])).mean(0)
        np.testing.assert_allclose(trainer.model.norm.mean[...], 0.01 * mean, rtol=1e-4, atol=1e-7)
        assert not np.allclose(trainer.model.norm.mean[...], 0)
        if where == "one":
            np.testing.assert_allclose(
                losses[where][0], float(told(WithNorm(nnx.Rngs(0)), x, labels, jnp.int32(0))[0]), rtol=1e-5
            )
            evaluated = WithNorm(nnx.Rngs(0))
            nnx.update(evaluated, nnx.state(trainer.model))
            evaluated.eval()
            expected = float(plain_loss(lambda x, model=evaluated: model(x, jnp.int32(0)), x, labels))
            assert trainer.evaluate([(x, labels)])["loss"] == pytest.approx(expected, rel=1e-5)
        losses[where] += [float(trainer.step(x, labels)["loss"]) for _ in range(2)]
        assert losses[where][1] != losses[where][2], "other cells are dropped in every step"
    np.testing.assert_allclose(losses["one"], losses["2x4"], rtol=1e-5)


def test_what_is_not_trained_stays():
    def told(model, x, y):
        return tp.nnx.mean_squared_error(model(x), y)

    base = tp.nnx.Linear(FEATURES, CLASSES, dims=("embed", "mlp"), rngs=nnx.Rngs(0))
    model = tp.nnx.LoRA(FEATURES, 2, CLASSES, base_module=base, rngs=nnx.Rngs(1))
    x = batches(1)[0][0]
    plan = tp.plan(tp.trace(told, model, TYPES[0], x[:, :CLASSES]), *_on("2x4"))
    trainer = tp.nnx.Trainer(told, model, optax.sgd(0.1), plan, wrt=nnx.LoRAParam)
    losses = [float(trainer.step(x, x[:, :CLASSES])["loss"]) for _ in range(3)]
    assert losses == sorted(losses, reverse=True) and losses[0] > losses[2]
    after = parameters(trainer.model)
    moved = {name for name, array in parameters(model).items() if not np.array_equal(array, after[name])}
    assert moved == {"lora_a", "lora_b"}


def test_a_batch_in_containers_is_refused_after_others_and_a_trainer_says_what_it_trains():
    trainer = trainer_of()
    ((x, labels),) = batches(1)
    assert "numbers, 0 steps taken)" in repr(trainer)
    trainer.step(x, labels)
    assert repr(trainer).startswith("Trainer(loss: ") and repr(trainer).endswith("numbers, 1 step taken)")
    # The leaves are those of the step before; JAX's own error of their trees came up.
    with pytest.raises(tp.TapestryError, match="structure"):
        trainer.step({"x": x}, labels)
