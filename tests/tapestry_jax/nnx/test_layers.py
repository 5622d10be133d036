"""Every layer equals Flax's own, in value and gradient, given the same weights, planned and not."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp
from tests.simulated.sampled import held
from tests.tapestry_jax.draw import normal
from tests.thoroughly import but

X = normal(2, 6, 8)
TOKENS = jnp.asarray(np.random.default_rng(2).integers(0, 11, (2, 6), np.int32))


IMAGE = normal(2, 8, 6, 4)
IMAGE_DIMS = {"batch": 2, "y": 8, "x": 6, "channels": 4}
CUT = {"y": "data", "x": "model"}


def rngs() -> nnx.Rngs:
    return nnx.Rngs(0)


def randomise(module: nnx.Module) -> None:
    """Zeros and ones would hide a parameter that is not used."""
    leaves, tree = jax.tree.flatten(nnx.state(module))
    drawn = [normal(*leaf.shape, seed=number) for number, leaf in enumerate(leaves)]
    nnx.update(module, jax.tree.unflatten(tree, drawn))


PAIRS = {
    "linear": lambda: (tp.nnx.Linear(8, 5, rngs=rngs()), nnx.Linear(8, 5, rngs=rngs()), X),
    "linear without bias": lambda: (
        tp.nnx.Linear(8, 5, use_bias=False, rngs=rngs()),
        nnx.Linear(8, 5, use_bias=False, rngs=rngs()),
        X[0, 0],
    ),
    "linear general": lambda: (
        tp.nnx.LinearGeneral(8, (3, 4), dims=("embed", ("heads", "head_dim")), rngs=rngs()),
        nnx.LinearGeneral(8, (3, 4), rngs=rngs()),
        X,
    ),
    "linear general of two": lambda: (
        tp.nnx.LinearGeneral((6, 8), 5, dims=(("seq", "embed"), "out"), rngs=rngs()),
        nnx.LinearGeneral((6, 8), 5, axis=(-2, -1), rngs=rngs()),
        X,
    ),
    "linear general, kernels of a batch": lambda: (
        tp.nnx.LinearGeneral(6, (3, 2), axis=1, batch_axis={0: 2}, dims=("batch", "seq", ("h", "d")), rngs=rngs()),
        nnx.LinearGeneral(6, (3, 2), axis=1, batch_axis={0: 2}, rngs=rngs()),
        X,
        {"batch": 2, "seq": 6, "embed": 8},
        {"batch": "model", "seq": "data"},
    ),
    "embed": lambda: (tp.nnx.Embed(11, 8, rngs=rngs()), nnx.Embed(11, 8, rngs=rngs()), TOKENS),
    "layer norm": lambda: (
        tp.nnx.LayerNorm(8, rngs=rngs()),
        nnx.LayerNorm(8, rngs=rngs()),
        X,
        {"batch": 2, "seq": 6, "embed": 8},
        {"embed": "data", "batch": "model"},
    ),
    "layer norm, other options": lambda: (
        tp.nnx.LayerNorm(8, epsilon=1e-2, use_bias=False, rngs=rngs()),
        nnx.LayerNorm(8, epsilon=1e-2, use_bias=False, rngs=rngs()),
        X + 1.0,
    ),
    "rms norm": lambda: (
        tp.nnx.RMSNorm(8, rngs=rngs()),
        nnx.RMSNorm(8, rngs=rngs()),
        X,
        {"batch": 2, "seq": 6, "embed": 8},
        {"embed": "data", "seq": "model"},
    ),
    "group norm": lambda: (*norms("GroupNorm", num_groups=2), IMAGE, IMAGE_DIMS, {"y": "data", "groups": "model"}),
    "group norm of many axes": lambda: (
        *norms("GroupNorm", num_groups=None, group_size=2, use_scale=False),
        IMAGE,
        IMAGE_DIMS,
        CUT,
    ),
    "instance norm": lambda: (*norms("InstanceNorm"), IMAGE, IMAGE_DIMS, CUT),
    "batch norm, running": lambda: (
        *norms("BatchNorm", use_running_average=True),
        IMAGE,
        IMAGE_DIMS,
        {"batch": "data", "channels": "model"},
    ),
    "attention": lambda: (
        tp.nnx.MultiHeadAttention(2, 8, 12, rngs=rngs()),
        CausalAttention(2, 8, 12, rngs=rngs()),
        X,
    ),
    "attention, not causal": lambda: (
        tp.nnx.MultiHeadAttention(4, 8, causal=False, use_bias=False, rngs=rngs()),
        nnx.MultiHeadAttention(4, 8, use_bias=False, decode=False, rngs=rngs()),
        X,
    ),
    "mlp": lambda: (tp.nnx.MLP(8, 16, rngs=rngs()), FlaxMLP(8, 16, rngs=rngs()), X),
    "attention, normalised": lambda: (
        tp.nnx.MultiHeadAttention(2, 8, causal=False, normalize_qk=True, rngs=rngs()),
        nnx.MultiHeadAttention(2, 8, normalize_qk=True, decode=False, rngs=rngs()),
        X,
        {"batch": 2, "seq": 6, "embed": 8},
        {"heads": "model", "keys": "data"},
    ),
    "glu": lambda: (
        tp.nnx.GLU(8, 6, use_bias=True, rngs=rngs()),
        FlaxGLU(8, 6, nnx.sigmoid, True),
        X,
        {"batch": 2, "seq": 6, "embed": 8},
        {"mlp": "model", "embed": "data"},
    ),
    "swiglu": lambda: (tp.nnx.SwiGLU(8, 6, rngs=rngs()), FlaxGLU(8, 6, nnx.silu, False), X),
    "lora": lambda: (
        tp.nnx.LoRA(8, 2, 5, base_module=tp.nnx.Linear(8, 5, rngs=rngs()), rngs=rngs()),
        nnx.LoRA(8, 2, 5, base_module=nnx.Linear(8, 5, rngs=rngs()), rngs=rngs()),
        X,
        {"batch": 2, "seq": 6, "embed": 8},
        {"embed": "data", "mlp": "model"},
    ),
    "einsum": lambda: (
        tp.nnx.Einsum("b s a, h a d -> b s h d", (3, 8, 2), (3, 2), rngs=rngs()),
        nnx.Einsum("bsa,had->bshd", (3, 8, 2), (3, 2), rngs=rngs()),
        X,
        {"b": 2, "s": 6, "a": 8},
        {"a": "data", "h": None, "s": "model"},
    ),
    "sequential": lambda: (
        tp.nnx.Sequential(
            tp.nnx.Linear(8, 4, dims=("embed", "mlp"), rngs=rngs()),
            tp.Map(jnp.tanh),
            tp.nnx.Linear(4, 8, dims=("mlp", "embed"), rngs=rngs()),
        ),
        nnx.Sequential(nnx.Linear(8, 4, rngs=rngs()), nnx.tanh, nnx.Linear(4, 8, rngs=rngs())),
        X,
        {"batch": 2, "seq": 6, "embed": 8},
        {"batch": "data", "mlp": "model"},
    ),
    "conv, dilated": lambda: (*convs(6, (3, 2), kernel_dilation=(2, 1)), IMAGE, IMAGE_DIMS, CUT),
    "conv, strided": lambda: (
        *convs(6, (3, 2), 2, padding="VALID"),
        IMAGE,
        IMAGE_DIMS,
        {"channels": "data", "x": "model"},
    ),
    "conv, groups": lambda: (*convs(8, (3, 3), (2, 1), feature_group_count=4), IMAGE, IMAGE_DIMS, {"groups": "model"}),
    "conv, around": lambda: (*convs(2, (3, 2), padding="CIRCULAR"), IMAGE, IMAGE_DIMS, CUT),
    "conv, mirrored": lambda: (*convs(2, (3, 1), padding="REFLECT"), IMAGE, IMAGE_DIMS, CUT),
    "conv, padded": lambda: (*convs(2, (3, 2), padding=((2, 0), (1, 3))), IMAGE, IMAGE_DIMS, CUT),
    "conv of lines, causal": lambda: (
        tp.nnx.Conv(8, 3, 3, padding="CAUSAL", kernel_dilation=2, spatial=("seq",), rngs=rngs()),
        nnx.Conv(8, 3, 3, padding="CAUSAL", kernel_dilation=2, rngs=rngs()),
        X,
        {"batch": 2, "seq": 6, "channels": 8},
        {"seq": "data", "features": None},
    ),
    "conv of volumes": lambda: (
        tp.nnx.Conv(1, 2, (2, 2, 2), use_bias=False, rngs=rngs()),
        nnx.Conv(1, 2, (2, 2, 2), use_bias=False, rngs=rngs()),
        IMAGE[..., None],
        {"batch": 2, "z": 8, "y": 6, "x": 4, "channels": 1},
        {"z": "data", "y": "model"},
    ),
    "conv transpose": lambda: (*transposed((3, 2), (2, 3)), IMAGE, IMAGE_DIMS, {"y_out": "data"} | CUT),
    "conv transpose, valid": lambda: (*transposed((3, 3), (2, 1), padding="VALID"), IMAGE, IMAGE_DIMS, CUT),
    "conv transpose, dilated": lambda: (
        *transposed((2, 3), (3, 2), padding=((1, 2), (0, 3)), kernel_dilation=(2, 1)),
        IMAGE,
        IMAGE_DIMS,
        CUT,
    ),
    "max pool": lambda: (*pooled("max_pool", (3, 2), (2, 2), "SAME"), IMAGE, IMAGE_DIMS, CUT),
    "min pool": lambda: (*pooled("min_pool", (3, 2), None, ((1, 0), (1, 1))), IMAGE, IMAGE_DIMS, CUT),
    "avg pool": lambda: (*pooled("avg_pool", (3, 2), (1, 2), "SAME"), IMAGE, IMAGE_DIMS, CUT),
    "avg pool of what is there": lambda: (
        *pooled("avg_pool", (2, 3), (2, 1), ((1, 1), (2, 1)), False),
        IMAGE,
        IMAGE_DIMS,
        CUT,
    ),
}


def norms(name, **options):
    return tuple(getattr(library, name)(4, rngs=rngs(), **options) for library in (tp.nnx, nnx))


def convs(features, size, strides=1, **options):
    return tuple(library.Conv(4, features, size, strides, rngs=rngs(), **options) for library in (tp.nnx, nnx))


def transposed(size, strides, **options):
    return tuple(library.ConvTranspose(4, 3, size, strides, rngs=rngs(), **options) for library in (tp.nnx, nnx))


def pooled(name, *options):
    ours, theirs = (getattr(library, name) for library in (tp.nnx, nnx))
    return tp.nnx.Sequential(lambda x: ours(x, *options)), nnx.Sequential(lambda x: theirs(x, *options))


class CausalAttention(nnx.MultiHeadAttention):
    def __call__(self, x):
        return super().__call__(x, mask=nnx.make_causal_mask(jnp.ones(x.shape[:-1])), decode=False)


class FlaxMLP(nnx.Module):
    def __init__(self, features: int, hidden: int, *, rngs: nnx.Rngs):
        self.up, self.down = nnx.Linear(features, hidden, rngs=rngs), nnx.Linear(hidden, features, rngs=rngs)

    def __call__(self, x):
        return self.down(nnx.gelu(self.up(x)))


def called(module):
    graphdef, state = nnx.split(module)
    tree = jax.tree.structure(state)
    return lambda leaves, x: nnx.merge(graphdef, jax.tree.unflatten(tree, leaves))(x)


class FlaxGLU(nnx.Module):
    def __init__(self, features, hidden, activation, use_bias):
        self.activation = activation
        self.gate, self.up = (nnx.Linear(features, hidden, use_bias=use_bias, rngs=rngs()) for _ in range(2))
        self.down = nnx.Linear(hidden, features, use_bias=use_bias, rngs=rngs())

    def __call__(self, x):
        return self.down(self.activation(self.gate(x)) * self.up(x))


def test_what_runs_along_is_that_of_flax_on_every_mesh():
    ours, theirs = norms("BatchNorm", momentum=0.7)
    before, expected = nnx.state(ours), theirs(IMAGE)
    run = tp.plan(tp.trace(ours, tp.TensorType(IMAGE_DIMS)), tp.mesh(data=2, model=2), {"batch": "data", "y": "model"})
    y, running = run.compile()(before, IMAGE)
    for result in (y, ours(IMAGE)):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    for name in ("mean", "var"):
        for got in (running[name], getattr(ours, name)):
            np.testing.assert_allclose(got[...], getattr(theirs, name)[...], rtol=1e-5, atol=1e-6)
    ours.use_running_average = theirs.use_running_average = True
    np.testing.assert_allclose(ours(IMAGE), theirs(IMAGE), rtol=1e-5, atol=1e-5)


def planned_as(module, dims, entries, dtype):
    run = tp.plan(tp.trace(module, tp.TensorType(dims, dtype)), tp.mesh(data=2, model=2), entries or {}).compile()
    tree = jax.tree.structure(nnx.state(module))
    return lambda leaves, x: run(jax.tree.unflatten(tree, leaves), x)


def scored(call, leaves, x):
    """A scalar whose gradient tells every cell of the output apart, and the output."""
    y = call(leaves, x)
    return jnp.sum(y * jnp.cos(jnp.arange(y.size).reshape(y.shape))), y


# What others say with other sizes or another monoid, or models of it say.
THOROUGH = {
    *("linear without bias", "layer norm, other options", "group norm of many axes", "attention", "swiglu"),
    *("conv of volumes", "conv transpose, valid", "min pool", "avg pool"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name in THOROUGH)) for name in PAIRS]
)
def test_layer_equals_flax_with_gradients(name):
    """Unplanned, and under a plan where the pair comes with names of its input and entries."""
    ours, theirs, x, *planned = PAIRS[name]()
    randomise(ours)
    if hasattr(ours, "var"):
        ours.var[...] = jnp.abs(ours.var[...])
    nnx.update(theirs, nnx.state(ours))
    kinds = [jax.tree.structure(nnx.to_pure_dict(nnx.state(module))) for module in (ours, theirs)]
    assert kinds[0] == kinds[1]
    argnums = 1 if x.dtype == jnp.int32 else (1, 2)
    run = jax.value_and_grad(scored, argnums=argnums, has_aux=True)
    leaves = jax.tree.leaves(nnx.state(ours))
    runs = [planned_as(ours, *planned, x.dtype)] if planned else []

    def check(plain, on_a_mesh):
        # Each apart: in a program for several devices XLA cuts what is not planned as it likes, and gradients of
        # convolutions and of pooling are then other numbers (jaxlib 0.10.2, on CPUs).
        (expected, output), wanted = plain(partial(run, called(theirs)), leaves, x)
        results = [plain(partial(run, called(ours)), leaves, x)]
        results += [on_a_mesh(partial(run, each), leaves, x) for each in runs]
        # The key's bias has no gradient but rounding: what is large is so beside all gradients.
        scale = max(np.abs(slope).max() for slope in jax.tree.leaves(wanted))
        for (value, y), grads in results:
            np.testing.assert_allclose(y, output, rtol=1e-5, atol=2e-5)
            np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)
            for (path, a), b in zip(jax.tree.leaves_with_path(grads), jax.tree.leaves(wanted), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5 * scale, err_msg=str(path))

    held(check)


@pytest.mark.parametrize("name", but(["linear", "attention", "embed"], "attention"))
def test_layer_is_called_as_a_module_of_flax(name):
    ours, theirs, x = PAIRS[name]()
    nnx.update(theirs, nnx.state(ours))
    np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-5, atol=2e-5)
    loss = nnx.grad(lambda module, x: jnp.sum(module(x) ** 2))
    for a, b in zip(*(jax.tree.leaves(nnx.jit(loss)(module, x)) for module in (ours, theirs)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "name",
    [
        "linear",
        "linear general, kernels of a batch",
        "embed",
        "attention, not causal",
        "einsum",
        "conv, groups",
        "conv transpose",
    ],
)
def test_layer_starts_from_the_weights_of_flax(name):
    ours, theirs, *_ = PAIRS[name]()
    pairs = zip(jax.tree.leaves(nnx.state(ours)), jax.tree.leaves(nnx.state(theirs)), strict=True)
    for a, b in pairs:
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [None, jnp.bfloat16])
def test_layer_computes_in_the_dtype_of_flax(dtype):
    for ours, theirs in (
        (tp.nnx.Linear(8, 5, dtype=dtype, rngs=rngs()), nnx.Linear(8, 5, dtype=dtype, rngs=rngs())),
        (tp.nnx.LayerNorm(8, dtype=dtype, rngs=rngs()), nnx.LayerNorm(8, dtype=dtype, rngs=rngs())),
    ):
        for x in (X, X.astype(jnp.bfloat16)):
            got, expected = ours(x), theirs(x)
            assert got.dtype == expected.dtype
            np.testing.assert_allclose(got.astype(jnp.float32), expected.astype(jnp.float32), rtol=2e-2, atol=2e-2)


def test_embed_takes_negative_and_absent_tokens_as_flax():
    ours, theirs = tp.nnx.Embed(5, 3, rngs=rngs()), nnx.Embed(5, 3, rngs=rngs())
    tokens = jnp.array([-6, -5, -1, 0, 4, 5])
    np.testing.assert_array_equal(ours(tokens), theirs(tokens))


def test_a_table_is_attended_to_as_by_flax():
    ours, theirs = tp.nnx.Embed(5, 8, rngs=rngs()), nnx.Embed(5, 8, rngs=rngs())
    np.testing.assert_allclose(ours.attend(X), theirs.attend(X), rtol=1e-5, atol=1e-6)


def test_position_embed_takes_coordinates():
    ours = tp.nnx.PositionEmbed(9, 3, rngs=rngs())
    graph = tp.trace(ours, tp.TensorType({"batch": 2, "seq": 6}, jnp.int32))
    np.testing.assert_array_equal(graph(nnx.state(ours), TOKENS), ours.embedding[...][:6])
    assert graph.type_of(graph.outputs[0][1]).names == ("seq", "embed")
