"""Training, evaluation and sampling under one plan."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from settings import Settings

import tapestry_jax as tp

WARMUP = 50


def loss(model: Any, tokens: Any, targets: Any) -> Any:
    """Nats per byte: the program. Where it runs is said elsewhere."""
    return tp.nnx.cross_entropy(model(tokens), targets)


class Trainer:
    """Parameters and optimizer state in the layouts of a plan, and what is done with them.

    Args:
      plan: of `loss`.
      model: with the first parameters.
      settings: for the optimizer.

    Attributes:
      plan: of `loss`.
      run: the planned loss.
      seed: of the samples.
      state: parameters and optimizer state.
      step: compiled; state, tokens and targets to state and loss. The old state's memory is given to the new one.
    """

    def __init__(self, plan: tp.Plan, model: nnx.Module, settings: Settings) -> None:
        self.plan, self.run, self.seed = plan, plan.compile(), settings.seed
        params_at = plan.in_shardings[0]
        window = np.zeros((settings.batch, settings.length), np.int32)
        placed, *_ = plan.put(nnx.state(model), window, window)
        params = jax.tree.unflatten(jax.tree.structure(params_at), jax.tree.leaves(placed))

        optimizer = optax.adamw(_rate(settings.learning_rate), b2=0.99)
        everywhere = jax.sharding.NamedSharding(plan.mesh, jax.sharding.PartitionSpec())
        moments_at = optax.tree_utils.tree_map_params(
            optimizer,
            lambda _, at: at,
            jax.eval_shape(optimizer.init, params),
            params_at,
            transform_non_params=lambda _: everywhere,
        )
        self.state = (params, jax.jit(optimizer.init, out_shardings=moments_at)(params))

        def step(state: Any, tokens: Any, targets: Any) -> Any:
            params, moments = state
            value, gradients = jax.value_and_grad(self.run)(params, tokens, targets)
            updates, moments = optimizer.update(gradients, moments, params)
            return (optax.apply_updates(params, updates), moments), value

        # Tokens come from the host; each device is sent what the plan stores there.
        state_at = (params_at, moments_at)
        jitted = jax.jit(
            step,
            in_shardings=(state_at, *plan.in_shardings[1:]),
            out_shardings=(state_at, plan.out_shardings),
            donate_argnums=0,
        )
        self.step = jitted.lower(self.state, window, window).compile()
        # The same graph without a plan, on one device.
        self._unplanned = jax.jit(lambda *args: plan.graph(*args))

    def train(self, tokens: np.ndarray, targets: np.ndarray) -> float:
        """One step; its loss."""
        self.state, value = self.step(self.state, tokens, targets)
        return float(value)

    def evaluate(self, rows: np.ndarray) -> float:
        """The mean loss of rows `(batches, batch, length + 2)`, without training on them."""
        # One batch at a time: simulated devices share few threads, and programs in flight together can starve of them.
        return float(np.mean([float(self.run(self.state[0], row[:, 1:-1], row[:, 2:])) for row in rows]))

    def compare(self, row: np.ndarray) -> tuple[float, float]:
        """The loss of one batch under the plan, and without a plan on one device.

        Raises:
          SystemExit: when they differ by more than rounding.
        """
        tokens, targets = row[:, 1:-1], row[:, 2:]
        params = self.state[0]
        planned = float(self.run(params, tokens, targets))
        plain = float(self._unplanned(jax.tree.map(np.asarray, params), tokens, targets))
        if not abs(planned - plain) <= 1e-4 * max(1.0, abs(plain)):
            raise SystemExit(f"error: the planned loss is {planned:.7f}, the unplanned one {plain:.7f}")
        return planned, plain


def sample(trainer: Trainer, model: nnx.Module, prompts: list[bytes], length: int, temperature: float) -> list[bytes]:
    """Continue each prompt byte by byte until it is `length` bytes long.

    The forward pass is another program over the same parameters, planned with the same entries.
    """
    kind = tp.TensorType({"batch": len(prompts), "seq": length}, jnp.int32)
    run = tp.plan(tp.trace(model, kind), trainer.plan.mesh, dict(trainer.plan.entries)).compile()
    logits_at = jax.jit(
        lambda params, tokens, at: jax.lax.dynamic_index_in_dim(run(params, tokens), at, 1, keepdims=False)
    )
    rows = np.zeros((len(prompts), length), np.int32)
    for row, prompt in zip(rows, prompts, strict=True):
        row[: len(prompt)] = list(prompt)[:length]
    params, random = trainer.state[0], np.random.default_rng(trainer.seed)
    for at in range(min(map(len, prompts)), length):
        logits = np.asarray(logits_at(params, rows, at - 1)) / temperature
        # The largest of logits with Gumbel noise is a draw from their softmax.
        drawn = np.argmax(logits + random.gumbel(size=logits.shape), axis=-1)
        open_ended = np.array([len(prompt) <= at for prompt in prompts])
        rows[open_ended, at] = drawn[open_ended]
    return [bytes(row.astype(np.uint8)) for row in rows]


def _rate(peak: float) -> optax.Schedule:
    """Up to the peak in `WARMUP` steps, then down with the square root: no last step is needed to know it."""
    return lambda count: peak * jnp.minimum((count + 1) / WARMUP, jnp.sqrt(WARMUP / (count + 1)))
