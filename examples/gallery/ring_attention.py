"""Ring attention and context parallelism: the program of FlashAttention, with `queries` over a mesh axis.

For a sequence too long for one device. Either every device gathers the keys, or they rotate: each turn a device attends
to the keys it holds, and passes them on to its neighbour. Blocks of keys that a causal mask hides from all queries of a
block are skipped; dealt out in stripes, queries and keys leave every device the same to do in every turn.
"""

from __future__ import annotations

from flash_attention import arrays, attention, automatic
from gallery import Example, Planned, show

import tapestry_jax as tp


def example(heads: int = 4, seq: int = 2048, d: int = 64, chunks: int = 4) -> Example:
    plans = [
        Planned("context parallelism", {"queries": "data"}),
        Planned("context parallelism, keys in time", {"queries": "data", "keys": tp.chunks(chunks)}),
        Planned("ring attention", {"queries": "data", "keys": tp.ring("data")}),
        Planned(
            "striped attention",
            {"keys": (tp.ring("data"), tp.chunks(chunks)), "queries": (tp.striped("data"), tp.chunks(chunks))},
        ),
    ]
    return Example(attention, arrays(heads, seq, d), plans, automatic)


if __name__ == "__main__":
    show(example)
