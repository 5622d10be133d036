"""Decoding with a cache: token by token as the whole sequence at once, and as Flax's own, under plans and not."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp
from tapestry_jax.nnx.attention.cache import put_rows
from tapestry_jax.nnx.modules import forgetting
from tests.contract import assert_contract
from tests.damaged import damaged
from tests.simulated.sampled import computed
from tests.thoroughly import but, thoroughly

X = np.float32(np.random.default_rng(0).standard_normal((2, 6, 8)))
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "grouped and turned": {"num_key_value_heads": 2, "rotary_base": 100.0},
    "normalised": {"normalize_qk": True},
}


def layer_of(name: str) -> Any:
    return tp.nnx.MultiHeadAttention(4, 8, rngs=nnx.Rngs(0), **OPTIONS[name])


def steps(sizes: list[int], call: Any, x: Any = X) -> Any:
    """Results of calls one after the other, side by side."""
    ends = np.cumsum([0, *sizes])
    return np.concatenate([call(x[:, a:b]) for a, b in itertools.pairwise(ends)], axis=1)


def by_graphs(decoder: Any) -> Any:
    """The decoder as a function of what it reads, run in NumPy: a graph for each length. Called itself it compiles."""
    state, graphs = nnx.state(decoder), dict[int, Any]()

    def call(x: Any) -> Any:
        nonlocal state
        if x.shape[1] not in graphs:
            graphs[x.shape[1]] = tp.trace(decoder, x)
        y, written = computed(graphs[x.shape[1]], state, x)
        state = nnx.merge_state(state, written)
        return y

    return call


def whole(model: Any, x: Any) -> Any:
    return computed(tp.trace(model, x), nnx.state(model), x)


@pytest.mark.parametrize("name", but(OPTIONS, "plain", "normalised"))
def test_steps_are_the_whole_sequence(name: str) -> None:
    layer = layer_of(name)
    decoder = tp.nnx.with_cache(layer, 2, 7)
    np.testing.assert_allclose(steps([2, 1, 1, 2], decoder), whole(layer, X), rtol=1e-4, atol=1e-4)
    assert decoder.cache_index[...] == 6 and layer.cache_index is None
    beyond = decoder(X[:, :2])
    assert np.isfinite(beyond[:, 0]).all() and np.isnan(beyond[:, 1]).all()


# What is normalised is plain but for that.
@pytest.mark.parametrize("name", but(["plain", "normalised"], "plain"))
def test_steps_are_those_of_flax(name: str) -> None:
    layer = layer_of(name)
    theirs = nnx.MultiHeadAttention(4, 8, decode=True, rngs=nnx.Rngs(0), **OPTIONS[name])
    nnx.update(theirs, nnx.state(layer))
    theirs.init_cache((2, 7, 8))
    ours = tp.nnx.with_cache(layer, 2, 7)
    np.testing.assert_allclose(steps([1] * 6, ours), steps([1] * 6, theirs), rtol=1e-4, atol=1e-4)
    for part in ("cached_key", "cached_value", "cache_index"):
        np.testing.assert_allclose(getattr(ours, part)[...], getattr(theirs, part)[...], atol=1e-4, err_msg=part)


PLANS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "batch and heads": ("plain", 8, {"batch": "data", "heads": "model"}),
    "keys, uneven": ("normalised", 7, {"keys": ("data", "model")}),
    "keys, uneven, in chunks": ("grouped and turned", 7, {"keys": ("data", tp.chunks(2)), "heads": "model"}),
    "queries of a prompt": ("grouped and turned", 8, {"seq": "data", "keys": tp.ring("data")}),
}
# Decoders of models are cut by batch and heads in `nnx/models/test_decoding.py`. Of the others, what is sent by one
# position is what is sent by a prompt but for its size.
THOROUGH = ["batch and heads", "keys, uneven, in chunks"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name in THOROUGH)) for name in PLANS]
)
def test_steps_on_a_mesh(name: str) -> None:
    kind, length, entries = PLANS[name]
    layer, mesh = layer_of(kind), tp.mesh(data=2, model=2)
    decoder = tp.nnx.with_cache(layer, 2, length)
    runs: dict[int, Any] = {}
    for size in (1, 4):
        plan = tp.plan(tp.trace(decoder, tp.TensorType({"batch": 2, "seq": size, "embed": 8})), mesh, entries)
        plan.verify()
        if size > 1 or thoroughly():
            assert_contract(plan, False)
        runs[size] = plan.compile()
    state = nnx.state(decoder)

    def call(x: Any) -> Any:
        nonlocal state
        y, written = computed(runs[x.shape[1]], state, x)
        state = nnx.merge_state(state, written)
        return y

    np.testing.assert_allclose(steps([4, 1, 1], call), whole(layer, X), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", but([1, 7, 8], 8))
@pytest.mark.parametrize("count", [0, 1, 3, 8])
def test_rows_are_put_where_they_belong(length: int, count: int) -> None:
    """On a device, over a mesh evenly and unevenly, at every place, and beyond the end."""
    draw = np.random.default_rng(length + count)
    cache, rows = (np.float32(draw.standard_normal((1, n, 2, 2))) for n in (length, count))
    types = [tp.TensorType({"b": 1, name: n, "h": 2, "d": 2}) for name, n in (("keys", length), ("seq", count))]
    graph = tp.trace(put_rows, *types, tp.TensorType({}, jnp.int32))
    runs = [tp.plan(graph, tp.mesh(data=2), entries).compile() for entries in ({}, {"keys": "data"})]
    for first in range(length + 2):
        expected, kept = cache.copy(), max(0, min(count, length - first))
        expected[:, first : first + kept] = rows[:, :kept]
        for run in runs:
            np.testing.assert_array_equal(run(cache, rows, np.int32(first)), expected)


SIZES: dict[str, Any] = {"layers": 2, "embed": 8, "heads": 2, "vocab": 11, "max_len": 9}


@pytest.mark.parametrize("stacked", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_a_transformer_decodes(stacked: bool) -> None:
    model = tp.nnx.Transformer(tp.nnx.TransformerConfig(**SIZES, stacked=stacked), rngs=nnx.Rngs(0))
    tokens = np.arange(12).reshape(2, 6) % 11
    decoder = tp.nnx.with_cache(model, 2, 8, dtype=jnp.float32)
    # A prompt, and one by one, are compared above and in nnx/models/test_decoding.py.
    got = steps([4, 1, 1] if thoroughly() else [3, 3], by_graphs(decoder), tokens)
    np.testing.assert_allclose(got, whole(model, tokens), rtol=1e-4, atol=1e-5)
    graph = tp.trace(decoder, tp.TensorType({"batch": 2, "seq": 1}, jnp.int32))
    assert tp.Graph.from_json(graph.to_json()).key == graph.key
    assert {leaf.shape for leaf in jax.tree.leaves(nnx.state(decoder, nnx.Cache))} == (
        {(2,), (2, 2, 8, 2, 4), ()} if stacked else {(), (2, 8, 2, 4)}
    )


def test_a_mask_hides_what_is_cached() -> None:
    """A prompt that is padded on the left: its first two positions are seen by nobody."""
    options: dict[str, Any] = {"masked": True, "rngs": nnx.Rngs(0)}
    layer = tp.nnx.MultiHeadAttention(2, 8, **options)
    plain = tp.nnx.MultiHeadAttention(2, 8, rngs=nnx.Rngs(1))
    nnx.update(plain, nnx.state(layer))
    decoder = tp.nnx.with_cache(layer, {"batch": 2}, 6)
    mask = np.broadcast_to(np.arange(6) >= 2, (2, 1, 6))
    got = np.concatenate([decoder(X[:, at : at + 1], mask) for at in range(6)], axis=1)
    np.testing.assert_allclose(got[:, 2:], plain(X[:, 2:]), rtol=1e-4, atol=1e-5)


def test_what_has_no_cache_is_told() -> None:
    rngs = nnx.Rngs(0)
    for model, told in (
        (tp.nnx.Linear(8, 8, rngs=rngs), "nothing in the model keeps a cache"),
        (tp.nnx.MultiHeadAttention(2, 8, causal=False, rngs=rngs), "attention that is not causal cannot decode"),
        (tp.nnx.PositionEmbed(4, 8, rngs=rngs), "a cache is longer than there are positions"),
    ):
        with pytest.raises(tp.GraphError, match=told):
            tp.nnx.with_cache(model, 2, 8)


def test_a_layer_that_would_forget_is_told_beside_attention_that_does_not() -> None:
    """The attention keeps what it saw; with an empty state at every call the other layer would give other numbers."""
    rngs = nnx.Rngs(0)

    def rnn() -> Any:
        return tp.nnx.RNN(tp.nnx.GRUCell(8, 8, rngs=rngs))

    for layer, name in (
        (tp.nnx.Mamba(8, 4, rngs=rngs), "Mamba"),
        (tp.nnx.DiagonalSSM(8, 4, rngs=rngs), "DiagonalSSM"),
        (rnn(), "RNN"),
        (tp.nnx.Bidirectional(rnn(), rnn()), "RNN"),
        (tp.nnx.Stack([tp.nnx.DiagonalSSM(8, 4, rngs=rngs)]), "DiagonalSSM"),
    ):
        with pytest.raises(tp.GraphError, match=f"^{name} keeps no state between calls") as error:
            tp.nnx.with_cache(tp.nnx.Sequential(layer_of("plain"), layer), 2, 8)
        assert str(error.value).endswith("\n  Run the whole sequence in one call.")


class Written(tp.nnx.Module):
    """A layer of a user's, which gives what a function of values does."""

    signature = "... seq embed -> ... seq embed"

    def __init__(self, function: Any) -> None:
        self.function = nnx.static(function)

    def forward(self, x: Any) -> Any:
        return self.function(x)


class Cumulated(nnx.Module):
    def __call__(self, x: Any) -> Any:
        return jnp.cumsum(x, axis=1)


def _attends(x: Any) -> Any:
    keys = x.rename(seq="keys")
    return tp.attention(x, keys, keys, causal="seq")


def _centred(x: Any) -> Any:
    taken = tp.Map(lambda v, mean: v - mean[:, None], "b s e, b e -> b s e")
    return taken(x, tp.fold(tp.aggregators.Mean(), "b s e -> b e")(x))


def _by_position(x: Any) -> Any:
    added = tp.program(lambda x, total: (x + total, total + 1))
    begin = tp.Map(lambda v: v[:, 0], "b [s] e -> b e")(x)
    return tp.rearrange("s b e -> b s e")(added.feedback("seq")(x, begin)[0])


WINDOW = tp.Map(lambda v: v[:, 1:] + v[:, :-1], "b (s+[k]-1) e -> b s e", sizes={"k": 2}, boundary="zero")
MIXING: dict[str, Any] = {
    "scans": lambda: Written(tp.scan(tp.aggregators.Sum(), "b s e -> b s e", over="s")),
    "folds the positions": lambda: Written(_centred),
    "reads windows of": lambda: Written(WINDOW),
    "reads all of": lambda: Written(tp.Map(lambda v: v[:, ::-1], "b [s] e -> b [s] e")),
    "folds": lambda: Written(_attends),
    "scans the positions": Cumulated,
    "goes step by step along": lambda: Written(_by_position),
    "reads windows of the positions": lambda: nnx.Conv(8, 8, (3,), rngs=nnx.Rngs(0)),
}


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("how", MIXING)
def test_a_layer_that_mixes_positions_beside_a_cache_is_told(how: str, first: bool) -> None:
    """Whoever wrote it: what it gives for a position depends on others, of which a call has only its own."""
    parts = [layer_of("plain"), MIXING[how]()]
    decoder = tp.nnx.with_cache(tp.nnx.Sequential(*(parts[::-1] if first else parts)), 2, 8)
    with pytest.raises(tp.GraphError, match=r"^`layers/[01]/.*beside a cache keeps nothing between calls") as error:
        tp.trace(decoder, tp.TensorType({"batch": 2, "seq": 1, "embed": 8}))
    assert f"  it {how}" in str(error.value) and str(error.value).endswith("one call, without a cache.")


class Told(tp.nnx.Module):
    """Says the mean of its input; what it gives may depend on what it said before, or on what it says now."""

    def __init__(self, reads: str) -> None:
        self.reads, self.said = reads, tp.nnx.Auxiliary(jnp.zeros(()), dims=())

    def forward(self, x: Any) -> Any:
        before = self.said[...]
        self.said[...] = tp.fold(tp.aggregators.Mean(), "b s e -> ()")(x)
        if self.reads == "nothing":
            return x
        return x + (before if self.reads == "before" else self.said[...])


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("reads", ["nothing", "before", "now"])
def test_what_a_layer_says_of_a_call_may_fold_its_positions_where_nothing_reads_it(reads: str, stacked: bool) -> None:
    parts = [tp.nnx.Sequential(layer_of("plain"), Told(reads)) for _ in range(2)]
    model = tp.nnx.Stack(parts) if stacked else tp.nnx.Sequential(*parts)
    decoder = tp.nnx.with_cache(model, 2, 8)
    if reads == "nothing":
        expected, _ = whole(model, X)
        np.testing.assert_allclose(steps([3, 3], by_graphs(decoder)), expected, rtol=1e-4, atol=1e-4)
        return
    with pytest.raises(tp.GraphError, match="it folds the positions of one call"):
        tp.trace(decoder, tp.TensorType({"batch": 2, "seq": 1, "embed": 8}))


class Mixed(tp.nnx.Module):
    """What it gives or keeps is read by nothing behind it but by what it says."""

    def __init__(self, how: str) -> None:
        self.how, self.kept = how, nnx.BatchStat(jnp.zeros((2, 8)), dims=("batch", "embed"))
        self.said, self.more = (tp.nnx.Auxiliary(jnp.zeros((2, 8)), dims=("batch", "embed")) for _ in range(2))

    def forward(self, x: Any) -> Any:
        pooled = tp.fold(tp.aggregators.Mean(), "b s e -> b e")
        if self.how == "given":
            x = tp.Map(jnp.tanh)(WINDOW(x))
            self.said[...] = pooled(x)
        elif self.how == "kept":
            self.kept[...] = pooled(x)
            self.said[...] = tp.Map(jnp.tanh)(self.kept[...])
        elif self.how == "read by the next call":
            before, self.said[...] = self.said[...], pooled(x)
            self.more[...] = tp.Map(jnp.tanh)(self.said[...])
            x = tp.Map(lambda x, before: x + before[:, None], "b s e, b e -> b s e")(x, before)
        else:
            x = self.said[...] = pooled(x)
        return x


@pytest.mark.parametrize(
    ("how", "stacked"),
    [
        *itertools.product(["given", "kept", "read by the next call"], [False, True]),
        # A layer of a stack gives what it takes.
        ("given and said", False),
    ],
)
def test_what_is_read_by_what_a_layer_says_alone_matters_where_it_is_given_or_kept(how: str, stacked: bool) -> None:
    parts = [tp.nnx.Sequential(layer_of("plain"), Mixed(how)) for _ in range(1 + stacked)]
    decoder = tp.nnx.with_cache(tp.nnx.Stack(parts) if stacked else parts[0], 2, 8)
    types = tp.TensorType({"batch": 2, "seq": 1, "embed": 8})
    for program, inputs in ((decoder, (types,)), (lambda module, x: module(x), (decoder, types))):
        with pytest.raises(tp.GraphError, match="beside a cache keeps nothing between calls"):
            tp.trace(program, *inputs)


def test_a_loop_along_positions_that_is_not_told_is_seen() -> None:
    fault = damaged(forgetting._mixing, 'yield pending, "goes step by step along"', "pass")
    with fault, pytest.raises((AssertionError, pytest.fail.Exception)):
        test_a_layer_that_mixes_positions_beside_a_cache_is_told("goes step by step along", first=False)


def test_a_layer_of_each_position_decodes_beside_a_cache() -> None:
    """Of Flax and of a user."""
    rngs = nnx.Rngs(0)
    plain = nnx.Sequential(nnx.Linear(8, 8, rngs=rngs), nnx.LayerNorm(8, rngs=rngs), jax.nn.gelu)
    model = tp.nnx.Sequential(layer_of("plain"), plain, Written(tp.Map(jnp.tanh)), layer_of("normalised"))
    decoder = tp.nnx.with_cache(model, 2, 7)
    np.testing.assert_allclose(steps([3, 3], by_graphs(decoder)), whole(model, X), rtol=1e-4, atol=1e-4)
