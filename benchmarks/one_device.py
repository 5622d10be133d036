"""One device: traced layers, compiled, beside the same mathematics in plain `jax.numpy`."""

from __future__ import annotations

from typing import Any

import jax

from benchmarks.costs import counts
from benchmarks.models import Sizes, layer, with_gradients
from benchmarks.row import Row
from benchmarks.timing import paired

TIME, COUNTS = 1.03, 1.02
DIRECTIONS = {"forward": lambda function: function, "forward + backward": with_gradients}


def compiled_pair(name: str, direction: str, sizes: Sizes) -> tuple[Any, Any, tuple[Any, ...]]:
    """Our compiled layer, the compiled peer, and the arguments of both.

    Args:
      name: `mlp` or `block`.
      direction: a key of `DIRECTIONS`.
      sizes: of the layer.
    """
    graph, peer, args = layer(name, sizes)
    wrap = DIRECTIONS[direction]
    ours, theirs = (jax.jit(wrap(function)).lower(*args).compile() for function in (graph, peer))
    return ours, theirs, args


def rows(rounds: int = 200, sizes: Sizes | None = None) -> list[Row]:
    """Time, FLOPs and bytes accessed of the MLP and of the transformer block.

    Args:
      rounds: turns of each timing.
      sizes: of the layers.
    """
    found: list[Row] = []
    for name in ("mlp", "block"):
        for direction in DIRECTIONS:
            ours, peer, args = compiled_pair(name, direction, sizes or Sizes())
            case = f"{name}, {direction}"
            times = paired(lambda run=ours, a=args: run(*a), lambda run=peer, a=args: run(*a), rounds=rounds)
            found.append(Row(f"{case}: time", times.ours * 1e3, times.peer * 1e3, "ms", TIME, compared=times.ratio))
            cost, plain_cost = counts(ours), counts(peer)
            found.append(Row(f"{case}: FLOPs", cost["flops"], plain_cost["flops"], "flop", COUNTS))
            found.append(Row(f"{case}: bytes", cost["bytes"], plain_cost["bytes"], "B", COUNTS))
    return found
