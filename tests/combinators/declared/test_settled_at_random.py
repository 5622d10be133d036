"""Random kernels whose programs tell that boxes come to the whole: they do, as NumPy has them.

Drawn of what takes cells apart, treats them and puts them together again, in any order; nothing is known here of how
programs are read. Of most a program tells nothing, or that they are false: those are run, or refused.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from combinators.declared.check import Claim, check_declared
from combinators.declared.settled import is_settled
from combinators.errors import SignatureError
from combinators.index_space.signature import read_signature
from tests.simulated.evaluate import run_traced

Kernel = Callable[[Any], Any]
SIZE, CUTS = 8, ((4, 4), (2, 6), (3, 5), (1, 7))
MERGES: dict[str | None, Callable[..., Any]] = {"sum": np.add, "max": np.maximum, "min": np.minimum}
REDUCE = {"sum": jnp.sum, "max": jnp.max, "min": jnp.min}

# Of a vector of n + length cells: what it gives, and how many more cells that has.
ONE: list[tuple[Kernel, int]] = [
    (lambda v: 2 * v, 0),
    (lambda v: -v, 0),
    (jnp.abs, 0),
    (lambda v: v + 1, 0),
    (lambda v: jnp.where(v > 0, v, 3 * v), 0),
    (lambda v: v[1:], -1),
    (lambda v: v[:-1], -1),
    (lambda v: v[::-1], 0),
    (lambda v: jnp.concatenate([v[:1], 2 * v[1:]]), 0),
    (lambda v: jnp.concatenate([v[1:], v[:1]]), 0),
    (lambda v: jnp.concatenate([v, v[-1:]]), 1),
    (lambda v: jnp.stack([v[0] * 2, *v[1:]]), 0),
    (lambda v: jnp.stack(list(v)), 0),
    (lambda v: jnp.concatenate(jnp.split(v, [1])), 0),
    (lambda v: lax.pad(v, jnp.zeros((), v.dtype), [(1, 0, 0)]), 1),
    (lambda v: lax.dynamic_update_slice(v, -v[:1], (0,)), 0),
    (lambda v: v.at[0].add(1), 0),
    (lambda v: v * v[:1], 0),
    (lambda v: v[jnp.zeros(v.shape, jnp.int32)], 0),
    (jnp.cumsum, 0),
    (jnp.sort, 0),
    (lambda v: v - v.max(), 0),
    (lambda v: v * v.sum(), 0),
    (lambda v: (v[:, None] * v).sum(0), 0),
    (lambda v: (v[:, None] + v[None]).max(1), 0),
    (lambda v: jnp.diag(v[:, None] * jnp.ones_like(v)), 0),
    (lambda v: (v[None] * jnp.array([[1], [2]], v.dtype)).sum(0), 0),
    (lambda v: v.reshape(1, -1).T.reshape(-1), 0),
    (lambda v: jnp.tile(v, 2)[: len(v)], 0),
    (lambda v: jnp.repeat(v, 2)[::2], 0),
    (lambda v: v * jnp.arange(len(v)).astype(v.dtype), 0),
    (lambda v: v * jnp.ones(len(v), v.dtype).sum(), 0),
    (lambda v: v + jnp.cumsum(jnp.ones_like(v)), 0),
    (lambda v: v + jnp.arange(len(v))[-1].astype(v.dtype), 0),
    (lambda v: v * jnp.ones((len(v), 2), v.dtype).reshape(-1).sum(), 0),
    (lambda v: (v[:, None] @ jnp.ones((1, len(v)), v.dtype)).sum(1), 0),
    (lambda v: jax.jit(lambda u: jnp.concatenate([-u[:1], u[1:]]))(v), 0),
    (lambda v: lax.cond(v[0] > 0, lambda u: u, lambda u: -u, v), 0),
    # Of as many operands as results, which is no reason why each should be handed on.
    (lambda v: lax.fori_loop(0, 3, lambda _, u: u + 1, v), 0),
    (lambda v: lax.scan(lambda total, u: (total + u, total), jnp.zeros((), v.dtype), v)[1], 0),
    (lambda v: lax.while_loop(lambda at: at[0] < 3, lambda at: (at[0] + 1, at[1] * 2), (0, v))[1], 0),
    (lambda v: lax.sort((v, jnp.abs(v)))[1], 0),
    (lambda v: lax.optimization_barrier((v, 2 * v))[1], 0),
]
TWO: list[Callable[[Any, Any], Any]] = [jnp.add, jnp.multiply, jnp.maximum, lambda v, w: jnp.where(v > w, v, 2 * w)]
LAST: list[Kernel] = [
    lambda v: v.sum(),
    lambda v: v.max(),
    lambda v: v.min(),
    lambda v: v[0],
    lambda v: v[:1].sum(),
    lambda v: jnp.dot(v, v),
    lambda v: jnp.outer(v, v).sum(),
    lambda v: (v[:, None] * v).max(),
    lambda v: v.sum() + v[0],
    lambda v: v.sum() - v[1:].sum(),
    lambda v: 2 * v[:1].sum() + v[1:].sum(),
    lambda v: 2 * v.sum(),
    lambda v: v.sum() + 1,
    lambda v: v.max() * 2,
    lambda v: jnp.maximum(v[:1].max(), v.max()),
    lambda v: jnp.maximum(2 * v[:1].max(), v.max()),
    lambda v: v.sum() * v.sum(),
    lambda v: v[::2].sum() + v[1::2].sum(),
    lambda v: v.sum() * jnp.ones_like(v).sum(),
    lambda v: jnp.broadcast_to(v.sum(), v.shape).sum(),
    lambda v: jnp.dot(v, jnp.ones_like(v)),
    lambda v: (v[:, None] * jnp.ones_like(v)).sum(),
    lambda v: v[::2].sum() - v[1::2].sum(),
    lambda v: lax.fori_loop(0, 3, lambda _, u: u + 1, v.sum()),
    lambda v: lax.fori_loop(0, 3, lambda _, u: u * 2, v.max()),
    lambda v: lax.scan(lambda total, u: (total + u, total), v.sum(), v)[0],
    lambda v: lax.while_loop(lambda at: at[0] < 3, lambda at: (at[0] + 1, at[1] + 1), (0, v.sum()))[1],
    lambda v: lax.sort((jnp.stack([v.sum(), v.max()]), jnp.stack([v.max(), v.sum()])))[0][0],
    lambda v: lax.optimization_barrier((v.sum(), v.max()))[0],
]


def drawn(rng: random.Random, folds: bool) -> Kernel:
    """A kernel of a vector of any length of two and more."""
    steps: list[tuple[Any, tuple[int, ...]]] = []
    lengths = [0]
    for _ in range(rng.randint(1, 5)):
        at = rng.randrange(len(lengths))
        pairs = [other for other, length in enumerate(lengths) if length == lengths[at]]
        if rng.random() < 0.3 and len(pairs) > 1:
            steps.append((rng.choice(TWO), (at, rng.choice(pairs))))
            lengths.append(lengths[at])
        else:
            function, more = rng.choice(ONE)
            if lengths[at] + more < 0 and rng.random() < 0.5:
                continue
            steps.append((function, (at,)))
            lengths.append(lengths[at] + more)
    ends = [at for at, length in enumerate(lengths) if folds or length == 0]
    end, last = ends[-1], rng.choice(LAST)

    def kernel(x: Any) -> Any:
        values = [x]
        for function, read in steps:
            values.append(function(*(values[each] for each in read)))
        return last(values[end]) if folds else values[end]

    return kernel


def traced(kernel: Kernel, size: int) -> Any:
    return jax.make_jaxpr(kernel)(jax.ShapeDtypeStruct((size,), jnp.float32))


def is_taken(kernel: Kernel, native: str | None) -> bool:
    """Whether nothing is said against it, and nothing asked of its numbers."""
    claim = Claim("kernel", read_signature("n -> " if native else "n -> n"), {"n": SIZE})
    program, results = traced(kernel, SIZE), [() if native else ("n",)]
    try:
        check_declared(claim, program, results, lambda sizes: traced(kernel, sizes["n"]))
    except SignatureError:
        return False
    return is_settled(claim, program, results, {"n"}, native)


def of_boxes(kernel: Kernel, native: str | None, x: Any) -> Iterator[tuple[Any, Any]]:
    """What it gives of the whole, and what it gives of boxes comes to."""

    def run(block: Any) -> Any:
        return np.asarray(run_traced(traced(kernel, len(block)), jax.tree.structure(0), (block,)))

    for first, _ in CUTS:
        parts = run(x[:first]), run(x[first:])
        yield run(x), MERGES[native](*parts) if native else np.concatenate(parts)


def wrong(seed: str) -> tuple[bool, bool]:
    """Whether a drawn kernel is taken, and whether it is wrong on boxes."""
    rng = random.Random(seed)
    native = rng.choice([None, *MERGES])
    kernel = drawn(rng, native is not None)
    try:
        if not is_taken(kernel, native):
            return False, False
    except (TypeError, ValueError, IndexError):  # no kernel of a vector
        return False, False
    x = np.array([3, -2, 5, 1, -4, 2, -1, 7], np.float32)
    for each in (x, -x, x[::-1].copy()):
        try:
            pairs = list(of_boxes(kernel, native, each))
        except (TypeError, ValueError, IndexError):  # not of a box this small
            continue
        if not all(np.array_equal(whole, found) for whole, found in pairs):
            return True, True
    return True, False


@pytest.mark.parametrize("number", range(4))
def test_boxes_of_what_is_settled_come_to_the_whole(number: int) -> None:
    found = {f"{number}/{at}": wrong(f"{number}/{at}") for at in range(200)}
    assert sum(taken for taken, _ in found.values()) >= 8
    assert [seed for seed, (_, is_wrong) in found.items() if is_wrong] == []


if __name__ == "__main__":
    taken = bad = 0
    for at in itertools.count():
        is_there, is_wrong = wrong(f"long/{at}")
        taken, bad = taken + is_there, bad + is_wrong
        if is_wrong:
            print("wrong", f"long/{at}", flush=True)
        if at % 500 == 499:
            print(at + 1, "drawn", taken, "taken", bad, "wrong", flush=True)
