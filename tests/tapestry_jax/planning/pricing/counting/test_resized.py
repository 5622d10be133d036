"""Programs at other sizes: the same counts as those that are traced there, and no word where it is another program."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import tapestry_jax as tp
from tapestry_jax.planning.pricing import marginal as module
from tapestry_jax.planning.pricing.counting.count import counted
from tapestry_jax.planning.pricing.counting.resized import _is_prime, primes_for, resized
from tapestry_jax.planning.pricing.counting.traced import trace, trace_backward
from tapestry_jax.planning.pricing.marginal import Part, marginal
from tests.tapestry_jax.planning.pricing.test_marginal import PROGRAMS, graph_of, operation_of


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def joined(x, w):
    return [jnp.tanh(x.reshape(-1, x.shape[-1]) @ w).sum(0)]


def turned(x, w):
    return [lax.scan(lambda carry, row: (jnp.sin(carry @ w), row.sum()), jnp.zeros(w.shape[0]), x)[0]]


def transformed(x, w):
    return [jnp.abs(jnp.fft.fft(x @ w)).sum(0)]


def chosen(x, w):
    return [lax.cond(x.sum() > 0, lambda: jnp.tanh(x @ w), lambda: jnp.sin(x))]


def squared(x, w):
    return [jnp.tanh((x[..., :, None] * x[..., None, :]).reshape(-1))]


@pytest.mark.parametrize("function", [joined, turned, transformed, chosen, squared])
@pytest.mark.parametrize("backward", [False, True])
def test_counts_at_other_sizes_are_those_of_a_trace(function, backward):
    def traced(a, b, c):
        structs = f32(a, b, c), f32(c, c)
        forward = trace(function, structs)
        return trace_backward(forward, structs, (0, 1)) if backward else forward

    primes = primes_for({"a": 40, "b": 70, "c": 110}, ())
    program = traced(*primes.values())
    assert program is not None
    found = counted(program.at(dict(zip(primes.values(), (6, 35, 40), strict=True))))
    assert found == counted(traced(6, 35, 40))


def test_sizes_by_which_no_prime_divides_stay():
    jaxpr = jax.make_jaxpr(lambda x: jnp.pad(x, 1))(f32(17)).jaxpr
    assert resized(jaxpr, {17: 5}).outvars[0].aval.shape == (19,)


def test_primes_differ_and_divide_no_size_that_stays():
    found = primes_for({"a": 85, "b": 85, "c": 2}, {17 * 4, 13})
    assert len(set(found.values())) == 3
    assert not any(size % prime == 0 for prime in found.values() for size in (68, 13))


def test_primes_are_large_enough_to_be_no_factor_by_chance_and_near_the_dimension():
    found = primes_for({"a": 2, "b": 5000}, ())
    assert found["a"] >= 13 and 5000 / 5 <= found["b"] < 5000 / 4


@tp.program("b k -> b k")
def halved(x):
    def kernel(block):
        for _ in range(block.shape[0].bit_length()):
            block = jnp.sin(block)
        return block

    return tp.Map(kernel, "b k -> b k")(x)


def test_what_is_another_program_at_another_size_is_traced_there():
    shaped, operands = operation_of(graph_of(halved, (4096, 32)))
    b, k = shaped.signature.dims
    found = marginal(shaped.operation, operands, Part("result", frozenset()))
    assert found.at({b: 100, k: 32}).transcendental == 7 * 100 * 32


def _forget() -> None:
    """What other tests have asked of the same operations, programs too."""
    marginal.cache_clear()
    vars(module)["_traced"].cache_clear()


def test_one_program_tells_all_sizes(monkeypatch: pytest.MonkeyPatch):
    shaped, operands = operation_of(PROGRAMS["product"]())
    times: list[int] = []
    original = module.trace
    monkeypatch.setattr(module, "trace", lambda *args: times.append(1) or original(*args))
    _forget()
    found = marginal(shaped.operation, operands, Part("result", frozenset()))
    found.exact(tuple(sorted({**shaped.sizes, found.names[0]: 7}.items())))
    # At primes, and once more where it is held against that.
    assert len(times) == 2


def test_primes_are_factors_of_no_whole_dimension():
    # 13 would stand for b, and be taken for a part of c.
    program = tp.Map(lambda x: jnp.tanh(x), "b [c] -> b [c]")
    shaped, operands = operation_of(tp.trace(program, f32(65, 26)))
    times: list[int] = []
    traces = [module.trace]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "trace", lambda *args: times.append(1) or traces[0](*args))
        _forget()
        found = marginal(shaped.operation, operands, Part("result", frozenset()))
        assert found.exact(tuple(sorted({**shaped.sizes, found.names[0]: 7}.items()))).transcendental == 7 * 26
    assert len(times) == 2


def test_kernels_that_refuse_primes_are_traced_at_each_size():
    def pairs(x):
        return jnp.tanh(x.reshape(-1, 2, x.shape[-1])).reshape(x.shape)

    shaped, operands = operation_of(tp.trace(tp.Map(pairs, "b c -> b c"), f32(64, 32)))
    found = marginal(shaped.operation, operands, Part("result", frozenset()))
    b, c = shaped.signature.dims
    assert found.at({b: 24, c: 32}).transcendental == 24 * 32
    assert found.exact(((b, 6), (c, 32))).transcendental == 6 * 32


def test_integers_have_no_cotangents():
    def both(x):
        return [jnp.tanh(x), x.argmax(0)]

    program = trace_backward(trace(both, [f32(8, 4)]), [f32(8, 4)], (0,))
    assert program is not None and program.cotangents == 1
    assert trace_backward(trace(both, [f32(8, 4)]), [f32(8, 4)], ()) is None


def test_primes_of_vast_dimensions_are_found_at_once():
    """Dividing by every smaller number did not end."""
    found = primes_for({"row": 2**62, "col": 2**61, "few": 3}, [120])
    assert found == {"row": 922337203685477647, "col": 461168601842738791, "few": 13}  # by coreutils, primes
    graph = tp.trace(tp.fold(tp.aggregators.Sum(), "row col -> col"), tp.TensorType({"row": 2**61, "col": 3}))
    assert tp.plan(graph, tp.mesh(data=1), {}).cost(tp.machines.H100).seconds > 1e6


@pytest.mark.parametrize("number", [561, 1729, 2047, 3215031751, 3825123056546413051, 2**61 + 1, 1, 0, 41 * 43])
def test_what_passes_for_a_prime_is_one(number):
    assert not _is_prime(number)


def test_primes_are_what_nothing_divides():
    divided = [number for number in range(2, 3000) if all(number % each for each in range(2, int(number**0.5) + 1))]
    assert [number for number in range(3000) if _is_prime(number)] == divided
    assert _is_prime(2**61 - 1)
