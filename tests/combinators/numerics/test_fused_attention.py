"""The fused attention kernel: every form of attention that it takes agrees with the operation's own kernel."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators.graphs.nodes import Apply
from combinators.numerics.fused_attention import FitsFused, FusedAttention
from combinators.operations.dense import Dense

B, T, S, H, D = 2, 6, 4, 3, 8
SIZES = {"b": B, "q": T, "g": 2, "keys": S, "h": H, "d": D, "e": D}
Q, K, V = ("b", "q", "h", "d"), ("b", "keys", "h", "d"), ("b", "keys", "h", "e")
RNG = np.random.default_rng(0)


def _type(names: tuple[str, ...], dtype: Any = jnp.float32) -> tp.TensorType:
    return tp.TensorType({name: SIZES[name] for name in names}, dtype)


def _operation(
    q: Any = Q, k: Any = K, v: Any = V, *, mask: Any = None, bias: Any = None, dtype: Any = jnp.float32, **kw: Any
):
    """The attention on tensors of these axes, and operands: a mask that hides one row, a bias that hides another."""
    types = [_type(names, dtype) for names in (q, k, v)]
    optional = {}
    arrays = [jnp.asarray(RNG.standard_normal(t.shape), dtype) for t in types]
    for label, names in (("mask", mask), ("bias", bias)):
        if names is not None:
            optional[label] = len(types)
            types.append(_type(names, bool if label == "mask" else dtype))
            draw = RNG.standard_normal(types[-1].shape)
            array = np.where(draw > 1, -np.inf, draw) if label == "bias" else draw > -0.5
            row = array.reshape(-1, array.shape[-1])
            row[1:2] = -np.inf if label == "bias" else False
            arrays.append(jnp.asarray(row.reshape(array.shape), types[-1].dtype))

    def program(*values: Any) -> Any:
        return tp.attention(*values[:3], **{label: values[at] for label, at in optional.items()}, **kw)

    graph = tp.trace(lambda *values: program(*values), *types)
    index = next(i for i, node in enumerate(graph.nodes) if isinstance(node, Apply))
    return graph.shaped(index).operation, arrays


def _fused(operation: Any, implementation: str = "xla") -> FusedAttention:
    entry = operation.dense[0]
    assert isinstance(entry, Dense)
    assert isinstance(entry.kernel, FusedAttention)
    return dataclasses.replace(entry.kernel, implementation=implementation)


@pytest.mark.parametrize(
    ("form", "options"),
    [
        # Masks and biases alone are parts of both at once.
        pytest.param("plain", {}, marks=pytest.mark.thorough),
        ("causal", {"causal": True, "scale": 0.3}),
        pytest.param("mask", {"mask": ("b", "q", "keys")}, marks=pytest.mark.thorough),
        ("causal mask", {"mask": ("h", "q", "keys"), "causal": True}),
        pytest.param("bias", {"bias": ("h", "q", "keys")}, marks=pytest.mark.thorough),
        ("bias and mask", {"bias": ("q", "keys"), "mask": ("keys",)}),
        ("grouped queries", {"q": ("b", "g", "h", "q", "d"), "mask": ("g", "q", "keys")}),
        ("no heads", {"q": ("q", "d"), "k": ("keys", "d"), "v": ("keys", "e")}),
        ("another order", {"q": ("h", "q", "b", "d"), "k": ("keys", "h", "b", "d"), "v": ("h", "b", "keys", "e")}),
    ],
)
def test_fused_attention_is_attention_in_value_and_gradient(form: str, options: Any) -> None:
    operation, arrays = _operation(**options)
    at = (jnp.arange(T), jnp.arange(S)) if options.get("causal") else ()
    fused, plain = _fused(operation), operation.dense[-1]
    assert fused.takes(*arrays, *at)
    smooth = [i for i, array in enumerate(arrays) if array.dtype == jnp.float32]

    @jax.jit
    def both(cotangent: Any) -> Any:
        found = []
        for kernel in (fused, plain):

            def run(*chosen: Any, kernel: Any = kernel) -> Any:
                given = dict(zip(smooth, chosen, strict=True))
                return kernel(*(given.get(i, array) for i, array in enumerate(arrays)), *at)

            out, pull = jax.vjp(run, *(arrays[i] for i in smooth))
            found.append((out, pull(cotangent)))
        return found

    shape = jax.eval_shape(plain, *arrays, *at).shape
    (value, grads), (expected, wanted) = both(jnp.cos(jnp.arange(np.prod(shape))).reshape(shape))
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6, err_msg=form)
    for position, (actual, right) in enumerate(zip(grads, wanted, strict=True)):
        np.testing.assert_allclose(actual, right, rtol=1e-4, atol=1e-5, err_msg=f"{form}, operand {position}")


@pytest.mark.parametrize(
    "options",
    [
        {"bias": ("b", "q", "keys")},
        {"bias": ("q", "keys"), "mask": ("b", "keys")},
        {"q": ("b", "q", "h", "d"), "k": ("b", "keys", "h", "d"), "v": ("b", "keys", "e")},
    ],
)
def test_forms_that_the_fused_kernel_does_not_have_are_left_to_the_others(options: Any) -> None:
    operation, arrays = _operation(**options)
    assert not _fused(operation).takes(*arrays)


def test_values_of_another_size_are_left_to_the_others() -> None:
    operation, (q, k, v) = _operation()
    assert not _fused(operation).takes(q, k, v[..., :4])


@pytest.mark.parametrize("missing", [ImportError, NotImplementedError, RuntimeError, ValueError])
def test_what_the_library_says_of_limits_leaves_the_operation_to_the_others(
    missing: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _asked(missing, monkeypatch) is False


def test_a_fault_of_ours_is_not_taken_for_a_limit_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyError):
        _asked(KeyError, monkeypatch)


def _asked(raised: type[Exception], monkeypatch: pytest.MonkeyPatch) -> bool:
    operation, arrays = _operation()

    def fails(*args: Any, **options: Any) -> Any:
        raise raised

    monkeypatch.setattr(jax.nn, "dot_product_attention", fails)
    # Answers are kept by kernel: one that no other test asks for.
    return dataclasses.replace(_fused(operation), scale=len(raised.__name__) / 100).takes(*arrays)


def test_cudnn_is_asked_for_half_precision_on_cuda_and_whole_queries_where_causal() -> None:
    for causal in (False, True):
        operation, arrays = _operation(causal=causal)
        entry = operation.dense[0]
        assert isinstance(entry, Dense)
        assert (entry.platforms, entry.dtypes) == (("cuda",), ("bfloat16", "float16"))
        assert isinstance(entry.takes, FitsFused)
        queries, keys = (str(operation.signature.operands[i].axes[1].name) for i in (0, 1))
        assert entry.needs_whole(operation) == ({keys, queries} if causal else {keys})
        at = (jnp.arange(T), jnp.arange(S)) if causal else ()
        assert not entry.may_run(operation, [*arrays, *at], ())  # float32
        half = dataclasses.replace(entry, takes=None)
        halves = [array.astype(jnp.bfloat16) for array in arrays]
        assert half.may_run(operation, [*halves, *at], ())
        assert half.may_run(operation, [*halves, *at], (queries,)) is not causal
        assert not half.may_run(operation, [*halves, *at], (keys,))


def _jax_state(q: Any, k: Any, v: Any) -> Any:
    """JAX's output and log-sum-exp of a block with one head, as a state."""
    blocks = (array[:, None] for array in (q, k, v))
    out, lse = jax.nn.dot_product_attention(*blocks, implementation="xla", return_residual=True)
    return tp.monoids.attention_state(out[:, 0], lse[:, 0])


def _own_state(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.T / np.sqrt(D)
    return tp.monoids.attention_state(jax.nn.softmax(scores) @ v, jax.nn.logsumexp(scores, axis=-1))


def _merged(state: Any, q: Any, k: Any, v: Any) -> Any:
    left, right = state(q, k[:1], v[:1]), state(q, k[1:], v[1:])
    return tp.monoids.attention_output(tp.monoids.AttentionState.merge(left, right))


def _reference(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T / np.sqrt(D)) @ v


def test_an_output_and_its_log_sum_exp_are_a_state() -> None:
    arrays = [jnp.asarray(np.float32(RNG.standard_normal((n, D)))) for n in (T, S, S)]

    @jax.jit
    def values_and_gradients(*arrays: Any) -> Any:
        functions = (partial(_merged, _jax_state), partial(_merged, _own_state), _reference)
        return [(f(*arrays), jax.grad(lambda *a, f=f: jnp.sum(jnp.cos(f(*a))), (0, 1, 2))(*arrays)) for f in functions]

    (jax_value, jax_grads), (value, grads), (expected, wanted) = values_and_gradients(*arrays)
    np.testing.assert_allclose(jax_value, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)
    for actual, right in zip(grads, wanted, strict=True):
        np.testing.assert_allclose(actual, right, rtol=1e-4, atol=1e-5)
    # JAX stops the derivative of its log-sum-exp. This is why attention does not use it where keys are cut.
    assert np.abs(jax_grads[0] - wanted[0]).max() > 0.01


def test_a_row_that_sees_nothing_is_the_identity_of_states() -> None:
    state = tp.monoids.attention_state(jnp.full((D,), jnp.nan), jnp.asarray(-jnp.inf))
    assert [np.asarray(leaf).tolist() for leaf in state] == [-np.inf, 0, [0] * D]
