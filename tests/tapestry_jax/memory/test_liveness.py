"""What is alive at once in small programs, counted by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from tapestry_jax.memory import lives
from tapestry_jax.memory.compilers.rounded import rounded
from tapestry_jax.memory.liveness import peak
from tapestry_jax.memory.read import read_program

N = 64
SQUARE = jax.ShapeDtypeStruct((N, N), jnp.float32)
ONE = 4 * N * N


def peak_of(function, *structs):
    return peak(read_program(jax.make_jaxpr(function)(*structs)))


def turns(count, body):
    return lambda x, w: jax.lax.scan(lambda carry, _: (body(carry, w), None), x, length=count)[0]


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x, w: x * w + 1, 0),  # fused into the result
        (lambda x, w: x @ w, 0),  # made where the result lies
        (lambda x, w: (x @ w) @ w, 1),
        (lambda x, w: jnp.tanh(x @ w) @ w, 1),  # in the place of the product
        (lambda x, w: (x @ w) @ (w @ x), 2),
        (lambda x, w: ((x @ w) @ (w @ x)).T.reshape(-1), 2),  # views make nothing
        (lambda x, w: (x * 2) @ (w + 1), 2),  # a product reads from memory
        (lambda x, w: jnp.sum(x @ w) * (w + 1), 0),  # until the result is written, its place is free
        (lambda x, w: [(x @ w) @ w, x.at[0].set(0)][0], 1),  # what nobody reads is dropped
        (turns(3, lambda carry, w: carry @ w), 1),  # a turn reads the old value while it makes the new one
        (turns(3, lambda carry, w: carry + w), 0),
        (turns(3, lambda carry, w: jnp.tanh(carry @ w) @ w), 1),
    ],
)
def test_peaks_are_those_counted_by_hand(function, count):
    found = peak_of(function, SQUARE, SQUARE)
    assert found.bytes // ONE == count
    assert sum(live.bytes for live in found.live) >= found.bytes


def test_a_loop_keeps_what_its_gradient_needs_of_every_turn():
    def loss(x, w):
        return jnp.sum(jax.lax.scan(lambda carry, _: (jnp.tanh(carry @ w), None), x, length=10)[0])

    kept = peak_of(jax.grad(loss), SQUARE, SQUARE)
    # What every turn starts from and what tanh gave, which are one to newer versions.
    assert (20 if jax.__version_info__ < (0, 11) else 10) <= kept.bytes / ONE < 25
    assert max(kept.live, key=lambda live: live.bytes).type == f"float32[10,{N},{N}]"

    def again(x, w):
        turn = jax.checkpoint(lambda carry, _: (jnp.tanh(carry @ w), None))
        return jnp.sum(jax.lax.scan(turn, x, length=10)[0])

    assert 10 <= peak_of(jax.grad(again), SQUARE, SQUARE).bytes / ONE < 15


def types(function, *structs):
    return {live.type for live in peak(rounded(read_program(jax.make_jaxpr(function)(*structs)))).live}


@pytest.mark.parametrize("precision", [None, "default", "highest"])
def test_tpus_keep_what_only_products_read_in_half_the_bytes(precision):
    def loss(x, w):
        def turn(carry, _):
            return jnp.tanh(jnp.matmul(carry, w, precision=precision)), None

        return jnp.sum(jax.lax.scan(turn, x, length=10)[0])

    found = types(jax.grad(loss, 1), SQUARE, SQUARE)
    # What tanh gave is multiplied cell by cell; what every turn starts from is not.
    assert f"float32[10,{N},{N}]" in found
    assert (f"bfloat16[10,{N},{N}]" in found) == (precision != "highest")


@pytest.mark.parametrize(
    ("function", "narrow"),
    [
        (lambda x, w: jnp.tanh(x @ w).T @ w, True),
        (lambda x, w: (y := jnp.tanh(x @ w)) @ w + jnp.sort(y), False),  # somebody else reads it
        (lambda x, w: jnp.tanh(x.astype(jnp.float16) @ w.astype(jnp.float16)) @ w.astype(jnp.float16), False),
        (lambda x, w: jnp.sort(x @ w) + 1, False),
    ],
)
def test_what_is_rounded(function, narrow):
    assert any(kind.startswith("bfloat16") for kind in types(function, SQUARE, SQUARE)) == narrow


def test_what_a_loop_computes_for_nobody_is_not_counted():
    def both(x, w):
        def turn(carry, _):
            return (carry[0] @ w, jnp.cosh(carry[1] @ w)), carry[1] @ w

        return jax.lax.scan(turn, (x, x), length=10)[0][0]

    assert peak_of(both, SQUARE, SQUARE).bytes == peak_of(turns(10, lambda carry, w: carry @ w), SQUARE, SQUARE).bytes


def test_of_branches_the_largest_counts():
    def chosen(x, w):
        return jax.lax.cond(x[0, 0] > 0, lambda: ((x @ w) @ w) @ (w @ x), lambda: x)

    assert 2 <= peak_of(chosen, SQUARE, SQUARE).bytes / ONE < 3


def test_a_while_loop_holds_what_its_condition_reads():
    def looped(x, w):
        return jax.lax.while_loop(lambda s: s[0] < w[0, 0], lambda s: (s[0] + 1, s[1] @ w), (0.0, x))[1]

    assert 1 <= peak_of(looped, SQUARE, SQUARE).bytes / ONE < 2


def test_bodies_that_are_alike_have_blocks_of_their_own(monkeypatch):
    def layer(x, w):
        turned = turns(3, lambda carry, w: jnp.tanh(carry @ w) @ w)(x, w)
        return jax.lax.cond(x[0, 0] > 0, lambda x: jnp.sort((x @ w) * 2) @ w, lambda x: x @ w @ w, turned)

    structs = [jax.ShapeDtypeStruct((N, N), kind) for kind in (jnp.float32, jnp.float32, jnp.bfloat16)]

    def swapped(x, w, places):
        def turn(carry, _):
            made = jnp.tanh(carry[0] @ w), carry[1] * 2
            return tuple(made[place] for place in places), None

        return jax.lax.scan(turn, (x, x), None, length=3)[0]

    # Two layers that are alike, one that holds half as many bytes, and two loops that hand on in another order.
    traced = jax.make_jaxpr(
        lambda x, w, v: (layer(layer(x, w) @ w, w), layer(v, v), swapped(x, w, (0, 1)), swapped(x, w, (1, 0)))
    )(*structs)
    program = read_program(traced)
    shared, often = lives.blocks_of(program), iter(range(10**6))
    monkeypatch.setattr(lives.Bodies, "_number", lambda self, program: next(often))
    apart = lives.blocks_of(program)
    assert [(each.start, each.end, each.value, each.freed, each.joint) for each in shared] == [
        (each.start, each.end, each.value, each.freed, each.joint) for each in apart
    ]
    assert all(one.maker is two.maker for one, two in zip(shared, apart, strict=True))
