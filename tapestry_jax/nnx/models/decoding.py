"""Decoding: tokens that follow prompts, drawn one after the other, with a cache, under a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from combinators.arguments import is_whole, read_count, read_list
from combinators.arrows.tracing import trace
from combinators.errors import GraphError, SignatureError, message, spelt
from combinators.frozen import dataclass
from combinators.graphs.graph import Graph
from combinators.index_space.tensor_type import TensorType
from combinators.leaves import random
from combinators.recording.value import Value
from tapestry_jax.nnx.blocks.language_model import LanguageModel
from tapestry_jax.nnx.blocks.with_cache import with_cache
from tapestry_jax.nnx.models.sampling import Sampling
from tapestry_jax.nnx.options import read_float_dtype
from tapestry_jax.plan import Plan

_KEY, _POSITION = TensorType({"words": 2}, jnp.uint32), TensorType({}, jnp.int32)


@dataclass(frozen=True)
class Decoding:
    """The two programs of decoding, as functions of arrays.

    Attributes:
      empty: what a decoder keeps that has seen nothing, beside the variables of the model.
      prompt: from variables, the first tokens of all prompts, key and position to the next token and what was written.
      step: the same for one token of each row.
      places: where the variables lie, or None.
    """

    empty: Any
    prompt: Callable[..., Any]
    step: Callable[..., Any]
    places: Any


class Generator:
    """Draws the tokens that follow prompts. What is traced, planned and compiled for prompts of one shape is kept.

    A prompt goes through the model at once, and fills the cache of keys and values. Each further token is one more run
    of a program for one position, in a loop on the devices. Both are graphs like any other: `plan` places them.

    Which token is drawn is a function of the logits, the key, the row and the position alone, so that the same ones are
    drawn on every mesh, to the rounding of the logits.

    Args:
      model: a language model of `tp.nnx`.
      n: how many tokens follow each prompt.
      plan: from a graph to its plan, `lambda graph: tp.plan(graph, mesh, {"batch": "data", "heads": "model"})`; called
        for the program of the prompt and that of a step. By default nothing is planned.
      temperature: by which logits are divided; at 0 the largest one is taken.
      top_k: how many of the largest logits are drawn from; by default all.
      top_p: the probability that the most probable tokens reach together that are drawn from; by default all are.
      stop: a token, or several, behind which a row ends: all that follows in it is that token. Where all rows ended
        nothing more is computed.
      positions: of the cache; by default as many as are needed. Where a plan cuts `keys`, a number that its mesh axes
        divide keeps the pieces where they are.
      dtype: of the cache; by default that of the token vectors.

    Raises:
      GraphError: when an argument is not what it should be.
    """

    def __init__(
        self,
        model: LanguageModel,
        n: int,
        *,
        plan: Callable[[Graph], Any] | None = None,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        stop: Any = None,
        positions: int | None = None,
        dtype: Any = None,
    ) -> None:
        _check_model(model)
        self.model, self.count = model, read_count(n, "n= of Generator")
        self.plan = None if plan is None else _planner(plan)
        self.sampling = Sampling(temperature, top_k, top_p)
        self.stop = _read_stop(stop, model.embed.num_embeddings)
        self.positions = None if positions is None else read_count(positions, "positions= of Generator")
        own = model.embed.dtype or model.embed.embedding[...].dtype
        self.dtype = read_float_dtype(dtype, "dtype= of Generator") or own
        self._made: dict[tuple[int, int, int], tuple[Decoding, Callable[..., Any]]] = {}

    def __repr__(self) -> str:
        return f"Generator({self.count} tokens of a {type(self.model).__name__})"

    def __call__(self, prompt: Any, *, key: Any = None, lengths: Any = None) -> jax.Array:
        """The tokens that follow.

        Args:
          prompt: integers `(batch, positions)`.
          key: `jax.random.key(seed)`; it may be left out where nothing is drawn.
          lengths: of prompts that are shorter than others, `(batch,)`; what stands behind them is not read.

        Returns:
          int32 `(batch, n)`: of each row what follows its own prompt.

        Raises:
          SignatureError: when prompts are no such integers, or no tokens of the model.
          GraphError: without a key where tokens are drawn, or for more positions than the model has.
        """
        tokens, counts = self._read(prompt, lengths)
        words = self._read_key(key)
        batch, shared, total = len(tokens), int(counts.min()), int(counts.max()) + self.count
        known = self._made.get((batch, shared, total))
        if known is None:
            decoding = self._decoding(batch, shared, total)
            known = self._made[batch, shared, total] = (decoding, jax.jit(self._loop(decoding, shared, total)))
        decoding, loop = known
        # The model's own variables as they are now, and an empty cache.
        state = nnx.merge_state(nnx.state(self.model), decoding.empty)
        if decoding.places is not None:
            state = jax.device_put(state, decoding.places)
        return loop(state, tokens, counts, words)

    def _loop(self, decoding: Decoding, shared: int, total: int) -> Callable[..., Any]:
        stop, length = jnp.asarray(self.stop, jnp.int32), total - shared

        def ends(token: Any, at: Any, counts: Any) -> Any:
            # A prompt may hold such tokens: those alone count that were drawn.
            return (at >= counts) & (token[:, None] == stop).any(-1)

        def run(state: Any, tokens: Any, counts: Any, words: Any) -> Any:
            token, cache = decoding.prompt(state, tokens[:, :shared], words, jnp.int32(shared))

            def goes_on(carry: Any) -> Any:
                at, _, _, _, ended = carry
                return (~ended & (at < counts + self.count - 1)).any()

            def turn(carry: Any) -> Any:
                at, cache, token, made, ended = carry
                # Where a prompt goes on it is read; only behind it what was drawn.
                given = lax.dynamic_index_in_dim(tokens, jnp.minimum(at, tokens.shape[1] - 1), 1, keepdims=False)
                token = jnp.where(at < counts, given, token)
                made = lax.dynamic_update_index_in_dim(made, token, at - shared, 0)
                following, cache = decoding.step(nnx.merge_state(state, cache), token[:, None], words, at + 1)
                following = jnp.where(ended, token, following)
                return at + 1, cache, following, made, ended | ends(following, at + 1, counts)

            made = jnp.zeros((length, len(tokens)), jnp.int32)  # from the position `shared` on
            begin = jnp.int32(shared), cache, token, made, ends(token, shared, counts)
            at, _, last, made, _ = lax.while_loop(goes_on, turn, begin)
            behind = jnp.where(jnp.arange(shared, total)[:, None] < at, made, last)
            places = counts[None] - shared + jnp.arange(self.count)[:, None]
            return jnp.take_along_axis(behind, places, 0).T

        return run

    def _decoding(self, batch: int, shared: int, total: int) -> Decoding:
        positions = total if self.positions is None else self.positions
        if positions < total:
            details = (f"the longest prompt and what follows it are {total}", f"got {positions}")
            raise GraphError(message("positions= of Generator are too few", *details, remedy="Pass more, or None."))
        decoder = with_cache(self.model, batch, positions, dtype=self.dtype)
        sampling = self.sampling

        def program(decoder: LanguageModel, tokens: Value, key: Value, position: Value) -> Value:
            features = decoder.features(tokens)
            last = features if tokens.shape[1] == 1 else features[:, -1:]
            return sampling.choose(decoder.logits(last)[:, 0], random.fold_in(key, position))

        def made(count: int) -> tuple[Callable[..., Any], Any]:
            tokens = TensorType({"batch": batch, "seq": count}, jnp.int32)
            graph = trace(program, decoder, tokens, _KEY, _POSITION)
            plan = None if self.plan is None else _plan_of(self.plan(graph), graph)
            run = graph if plan is None else plan.compile()

            def call(*args: Any) -> tuple[Any, Any]:
                token, written = run(*args)
                return token, written["decoder"]

            return call, None if plan is None else plan.in_shardings[0]

        prompt, _ = made(shared)
        step, places = made(1)
        return Decoding(nnx.state(decoder, nnx.Cache), prompt, step, places)

    def _read(self, prompt: Any, lengths: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        tokens = _on_the_host(prompt)
        if tokens.ndim != 2 or not np.issubdtype(tokens.dtype, np.integer) or not tokens.size:
            details = ("expected integers (batch, positions)", f"got {tokens.dtype} {tokens.shape}")
            raise SignatureError(message("these are no prompts", *details, remedy="Pass a batch of token numbers."))
        counts = np.full(len(tokens), tokens.shape[1]) if lengths is None else _on_the_host(lengths)
        fits = counts.shape == tokens.shape[:1] and np.issubdtype(counts.dtype, np.integer)
        if not fits or counts.min() < 1 or counts.max() > tokens.shape[1]:
            details = (f"expected {len(tokens)} integers from 1 to {tokens.shape[1]}", f"got {spelt(lengths)}")
            raise SignatureError(message("lengths= of prompts", *details, remedy="Pass the length of each prompt."))
        read = tokens[np.arange(tokens.shape[1]) < counts[:, None]]
        vocab = self.model.embed.num_embeddings
        if read.min() < 0 or read.max() >= vocab:
            details = (f"expected numbers from 0 to {vocab - 1}", f"got {int(read.min())} to {int(read.max())}")
            remedy = "Encode the prompts with the vocabulary of the model."
            raise SignatureError(message("prompts hold tokens that the model does not have", *details, remedy=remedy))
        return np.clip(tokens, 0, vocab - 1).astype(np.int32), counts.astype(np.int32)

    def _read_key(self, key: Any) -> Any:
        if key is not None:
            return jax.random.key_data(random.fold_in(key, 0)) if _is_typed(key) else random.fold_in(key, 0)
        if not self.sampling.is_greedy:
            remedy = "Pass key=jax.random.key(0), or temperature=0.0."
            raise GraphError(message("drawing tokens needs a key", remedy=remedy))
        return np.zeros(2, np.uint32)


def generate(
    model: LanguageModel,
    prompt: Any,
    n: int,
    *,
    plan: Callable[[Graph], Any] | None = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: Any = None,
    key: Any = None,
    lengths: Any = None,
    positions: int | None = None,
    dtype: Any = None,
) -> jax.Array:
    """Draw the tokens that follow prompts, once: `Generator` with these arguments, called.

    Args:
      model: a language model of `tp.nnx`.
      prompt: integers `(batch, positions)`.
      n: how many tokens follow each prompt.
      plan: as `Generator` takes it.
      temperature: by which logits are divided; at 0 the largest one is taken.
      top_k: how many of the largest logits are drawn from; by default all.
      top_p: the probability that the most probable tokens reach together that are drawn from; by default all are.
      stop: a token, or several, behind which a row ends, as `Generator` takes them.
      key: `jax.random.key(seed)`, where tokens are drawn.
      lengths: of prompts that are shorter than others, `(batch,)`.
      positions: of the cache, as `Generator` takes them.
      dtype: of the cache; by default that of the token vectors.

    Returns:
      int32 `(batch, n)`.

    Raises:
      SignatureError: when prompts are no tokens of the model.
      GraphError: when an argument is not what it should be.
    """
    sampling: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    return Generator(model, n, plan=plan, stop=stop, positions=positions, dtype=dtype, **sampling)(
        prompt, key=key, lengths=lengths
    )


def _on_the_host(numbers: Any) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(numbers)
    except jax.errors.TracerArrayConversionError as error:
        details = ("tokens and lengths are looked at before anything is traced", f"got {spelt(numbers)}")
        raise SignatureError(message("prompts inside of jax.jit", *details, remedy="Call it from outside.")) from error
    except (TypeError, ValueError) as error:
        details = ("expected integers in rows of one length", f"got {spelt(numbers)}")
        remedy = "Pad prompts to one length, and pass lengths=."
        raise SignatureError(message("prompts or their lengths are no array", *details, remedy=remedy)) from error


def _read_stop(stop: Any, vocab: int) -> tuple[int, ...]:
    listed = (
        () if stop is None else read_list(stop, "stop= of Generator") if isinstance(stop, tuple | list) else (stop,)
    )
    wrong = [token for token in listed if not is_whole(token) or not 0 <= token < vocab]
    if wrong:
        details = (f"expected numbers from 0 to {vocab - 1}", f"got {spelt(wrong[0])}")
        remedy = "Pass tokens of the model, such as stop=(2,), or None."
        raise GraphError(message("stop= of Generator holds no tokens of the model", *details, remedy=remedy))
    return tuple(map(int, listed))


_PLANNER = 'Pass a function such as lambda graph: tp.plan(graph, mesh, {"batch": "data"}).'


def _planner(plan: Any) -> Any:
    """What `plan=` is: a plan is of one graph, and there are two, for the prompt and for a step."""
    if callable(plan):
        return plan
    details = ("expected a function from a graph to its plan", f"got {type(plan).__name__}: {spelt(plan)}")
    raise GraphError(message("plan= of Generator is no function", *details, remedy=_PLANNER))


def _plan_of(found: Any, graph: Graph) -> Plan | None:
    """What `plan=` gave: None leaves a program unplanned."""
    if found is None or (isinstance(found, Plan) and (found.graph is graph or found.graph.key == graph.key)):
        return found
    details = ("expected a plan of the graph that it was given", f"got {type(found).__name__}: {spelt(found)}")
    raise GraphError(message("plan= of Generator gives no plan", *details, remedy=_PLANNER))


def _is_typed(key: Any) -> bool:
    return isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)


def _check_model(model: Any) -> None:
    if not isinstance(model, LanguageModel):
        details = ("expected a LanguageModel", f"got {type(model).__name__}: {spelt(model)}")
        remedy = "Pass one, such as tp.nnx.models.Llama, or derive yours from tp.nnx.LanguageModel."
        raise GraphError(message("model= of Generator cannot decode", *details, remedy=remedy))
    if not all(hasattr(leaf, "addressable_shards") for leaf in jax.tree.leaves(nnx.state(model))):
        details = ("its variables are no arrays",)
        remedy = "Load weights: Llama.from_safetensors(paths, config)."
        raise GraphError(message("model= of Generator has no weights", *details, remedy=remedy))
