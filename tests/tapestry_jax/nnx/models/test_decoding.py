"""Decoding: greedily as without a cache, by the same draws on every mesh, for prompts of several lengths."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp
from tapestry_jax.nnx.models import GPT, Generator, GPTConfig, Llama, LlamaConfig, Mixtral, MixtralConfig, generate
from tests.contract import assert_contract
from tests.simulated.sampled import computed

PROMPT = np.random.default_rng(0).integers(0, 31, (4, 5)).astype(np.int32)
LENGTHS = np.array([2, 5, 3, 4])
TENSORS = {"batch": "data", "heads": "model", "mlp": "model", "vocab": "model"}
PLANS: dict[str, Any] = {"tensors": TENSORS, "keys": {"batch": "data", "keys": "model"}}


@pytest.fixture(scope="module")
def model():
    return Llama(LlamaConfig(2, 16, 8, 31, 24, num_key_value_heads=4), rngs=nnx.Rngs(0))


OTHER = tp.plan(tp.trace(lambda x: x, tp.TensorType({"batch": 2})), tp.mesh(data=1), {})


def without_cache(model, prompt, lengths, n):
    """The most probable tokens, by the whole sequence each time: padded, since later positions are not seen."""
    tokens, rows = np.pad(prompt, ((0, 0), (0, n))), np.arange(len(prompt))
    graph = tp.trace(model, tokens)
    for at in range(n):
        logits = computed(graph, nnx.state(model), tokens)
        tokens[rows, lengths + at] = np.argmax(logits[rows, lengths + at - 1], -1)
    return tokens[rows[:, None], lengths[:, None] + np.arange(n)]


@pytest.fixture(scope="module")
def greedy(model):
    """What follows each prompt of its own length."""
    return without_cache(model, PROMPT, LENGTHS, 6)


def test_greedy_tokens_are_those_without_a_cache(model, greedy):
    # What stands behind the end of a short prompt is not read.
    filled = np.where(np.arange(5) < LENGTHS[:, None], PROMPT, -100)
    np.testing.assert_array_equal(generate(model, filled, 6, lengths=LENGTHS), greedy)


# Positions that are embedded are beside a cache in nnx/attention/test_cache.py.
@pytest.mark.thorough
def test_gpt_decodes_up_to_its_last_position():
    gpt = GPT(GPTConfig(2, 8, 2, 31, max_len=8), rngs=nnx.Rngs(0))
    np.testing.assert_array_equal(generate(gpt, PROMPT, 3), without_cache(gpt, PROMPT, np.full(4, 5), 3))
    with pytest.raises(tp.GraphError, match="a cache is longer than there are positions"):
        generate(gpt, PROMPT, 4)


@pytest.mark.parametrize("name", ["tensors", pytest.param("keys", marks=pytest.mark.thorough)])
def test_tokens_are_the_same_on_every_mesh(model, greedy, mesh2x4, name):
    plans: list[Any] = []

    def plan(graph):
        plans.append(tp.plan(graph, mesh2x4, PLANS[name]))
        return plans[-1]

    # Two rows end at tokens of their own, the others do not; those of prompts end nothing.
    stop = tuple(map(int, (greedy[0, 1], greedy[2, 4], PROMPT[1, 0])))
    assert len({tuple(np.flatnonzero(np.isin(row, stop))[:1]) for row in greedy}) > 1
    found = generate(model, PROMPT, 6, lengths=LENGTHS, stop=stop, plan=plan, positions=12)
    np.testing.assert_array_equal(found, ended(greedy, stop))
    for each in plans:
        assert_contract(each, False)
        # No keys and no values are sent: they stay where they were written.
        cache = max(each.graph.type_of(ref).nbytes for _, ref in each.graph.outputs)
        assert cache == 4 * 2 * 4 * 12 * 4 * 2 and max(step.bytes for step in each.collectives()) < cache / 8


@pytest.mark.thorough
def test_what_is_drawn_is_the_same_on_every_mesh(model, greedy, mesh2x4):
    options: dict[str, Any] = {"temperature": 1.3, "top_k": 9, "top_p": 0.9, "key": jax.random.key(3)}
    drawn = generate(model, PROMPT, 6, **options)
    planned = generate(model, PROMPT, 6, plan=lambda graph: tp.plan(graph, mesh2x4, TENSORS), **options)
    np.testing.assert_array_equal(planned, drawn)
    assert (np.asarray(drawn)[1] != greedy[1]).any()


def ended(tokens, stop):
    """Rows, each its own first token of `stop` from there on."""
    tokens = np.array(tokens)
    for row in tokens:
        for at in np.flatnonzero(np.isin(row, stop))[:1]:
            row[at:] = row[at]
    return tokens


# As on a mesh, above.
@pytest.mark.thorough
def test_rows_end_behind_a_stop_token_each_by_itself(model, greedy):
    """In prompts such tokens end nothing; what a row draws does not depend on how the others end."""
    stop = tuple(map(int, (greedy[0, 1], greedy[2, 4], PROMPT[1, 0])))
    expected = ended(greedy, stop)
    ends = [tuple(np.flatnonzero(np.isin(row, stop))[:1]) for row in greedy]
    assert len(set(ends)) > 1
    np.testing.assert_array_equal(generate(model, PROMPT, 6, lengths=LENGTHS, stop=stop), expected)
    assert generate(model, PROMPT, 1, stop=int(greedy[0, 0])).shape == (4, 1)


def test_nothing_is_computed_where_all_rows_ended(model, monkeypatch):
    turns: list[int] = []
    decoding = Generator._decoding

    def counted(self, *sizes):
        made = decoding(self, *sizes)

        def step(*args):
            jax.debug.callback(turns.append, args[-1])
            return made.step(*args)

        return replace(made, step=step)

    monkeypatch.setattr(Generator, "_decoding", counted)
    first = np.asarray(Generator(model, 5)(PROMPT))
    jax.effects_barrier()
    taken = len(turns)
    Generator(model, 5, stop=[int(token) for token in first[:, 0]])(PROMPT)
    jax.effects_barrier()
    assert taken == 4 and len(turns) == 4


SHAPES = {
    "gpt": lambda: GPT(GPTConfig(2, 16, 4, 31, max_len=16), rngs=nnx.Rngs(0)),
    "mixtral": lambda: Mixtral(MixtralConfig(2, 16, 4, 31, 8, num_key_value_heads=4, experts=4), rngs=nnx.Rngs(0)),
}
HEADS = dict.fromkeys(("heads", "mlp", "vocab"), "model")
MESHES: dict[str, Any] = {
    "1": ({"data": 1, "model": 1}, TENSORS),
    "2x4": ({"data": 2, "model": 4}, TENSORS),
    "2x3": ({"data": 2, "model": 3}, TENSORS),
    "8 by batch": ({"data": 8}, {"batch": "data"}),
    "8 by heads": ({"model": 8}, HEADS),
    "3 by batch": ({"data": 3}, {"batch": "data"}),
    "3 by heads": ({"model": 3}, HEADS),
}
DRAWS: dict[str, Any] = {
    "greedy": {},
    "drawn": {"temperature": 1.2, "top_k": 9, "top_p": 0.9, "key": jax.random.key},
}


@pytest.fixture(scope="module")
def unplanned():
    """For each shape and way to draw: the model, its options, tokens, and two of them at which rows end."""
    known: dict[Any, Any] = {}

    def of(shape, draw):
        if (shape, draw) not in known:
            made = SHAPES[shape]()
            options = {name: value(3) if callable(value) else value for name, value in DRAWS[draw].items()}
            tokens = np.asarray(generate(made, PROMPT, 6, lengths=LENGTHS, **options))
            known[shape, draw] = made, options, tokens, (int(tokens[0, 2]), int(tokens[2, 4]))
        return known[shape, draw]

    return of


# Rows end on a mesh above, greedily; what is drawn of a vocabulary that is cut is in test_sampling.py.
@pytest.mark.thorough
@pytest.mark.parametrize(("shape", "draw", "mesh"), [*itertools.product(SHAPES, DRAWS, MESHES)])
def test_rows_end_alike_on_every_mesh(unplanned, shape, draw, mesh):
    made, options, tokens, stop = unplanned(shape, draw)
    axes, entries = MESHES[mesh]
    found = generate(
        made,
        PROMPT,
        6,
        lengths=LENGTHS,
        stop=stop,
        plan=lambda graph: tp.plan(graph, tp.mesh(**axes), entries),
        **options,
    )
    np.testing.assert_array_equal(found, ended(tokens, stop))


def test_a_generator_keeps_what_is_compiled_and_reads_the_weights_as_they_are(model):
    seen: list[Any] = []
    generator = Generator(model, 3, plan=lambda graph: seen.append(graph), temperature=1.0)
    first, again, other = (generator(PROMPT, key=jax.random.key(seed)) for seed in (0, 0, 1))
    assert len(seen) == 2
    np.testing.assert_array_equal(first, again)
    assert (np.asarray(first) != np.asarray(other)).any()
    before = model.head.kernel[...]
    model.head.kernel[...] = jnp.roll(before, 1, axis=1)
    moved = generator(PROMPT, key=jax.random.key(0))
    model.head.kernel[...] = before
    assert (np.asarray(first) != np.asarray(moved)).any() and len(seen) == 2


@pytest.mark.parametrize(
    ("call", "error", "expected"),
    [
        (lambda m: generate(m, PROMPT + 7, 2), tp.SignatureError, "expected numbers from 0 to 30"),
        (lambda m: generate(m, PROMPT - 1, 2), tp.SignatureError, "prompts hold tokens that the model does not have"),
        (lambda m: generate(m, PROMPT[0], 2), tp.SignatureError, "expected integers (batch, positions)"),
        (lambda m: generate(m, PROMPT * 1.0, 2), tp.SignatureError, "these are no prompts"),
        (lambda m: generate(m, [[1, 2], [3]], 2), tp.SignatureError, "Pad prompts to one length, and pass lengths=."),
        (lambda m: generate(m, PROMPT[:, :0], 2), tp.SignatureError, "these are no prompts"),
        (lambda m: generate(m, PROMPT, 2, lengths=[1, 2, 3, 6]), tp.SignatureError, "4 integers from 1 to 5"),
        (lambda m: generate(m, PROMPT, 2, lengths=[1, 2, 3]), tp.SignatureError, "lengths= of prompts"),
        (lambda m: generate(m, PROMPT, 2, positions=6), tp.GraphError, "positions= of Generator"),
        (lambda m: generate(m, PROMPT, 2, plan=lambda graph: OTHER), tp.GraphError, "plan= of Generator gives no plan"),
        (lambda m: generate(m, PROMPT, 2, stop=31), tp.GraphError, "stop= of Generator holds no tokens of the model"),
        (lambda m: generate(m, PROMPT, 2, stop=[2, 1.5]), tp.GraphError, "got 1.5"),
        (
            lambda m: generate(m, PROMPT, 2, stop="</s>"),
            tp.GraphError,
            "stop= of Generator holds no tokens of the model",
        ),
        (lambda m: generate(m, PROMPT, 0), tp.GraphError, "n= of Generator"),
        (lambda m: generate(m, PROMPT, 2, temperature=1.0), tp.GraphError, "drawing tokens needs a key"),
        (lambda m: generate(m, PROMPT, 2, plan=3), tp.GraphError, "Pass a function such as lambda graph: tp.plan("),
        (lambda m: generate(m, PROMPT, 2, plan=lambda graph: graph), tp.GraphError, "plan= of Generator gives no plan"),
        (lambda m: jax.jit(lambda p: generate(m, p, 2))(PROMPT), tp.SignatureError, "prompts inside of jax.jit"),
        (lambda m: generate(Llama.abstract(m.config), PROMPT, 2), tp.GraphError, "model= of Generator has no weights"),
        (lambda m: generate(m, PROMPT, 2, dtype=jnp.int32), tp.GraphError, "dtype= of Generator"),
        (lambda m: generate(m, PROMPT, 2, temperature=1.0, key=3), tp.GraphError, "key"),
        (lambda m: generate(m.head, PROMPT, 2), tp.GraphError, "model= of Generator cannot decode"),
    ],
)
def test_what_cannot_be_decoded_is_refused(model, call, error, expected):
    with pytest.raises(error) as raised:
        call(model)
    assert expected in str(raised.value)
