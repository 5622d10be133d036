"""Dense kernels with conditions: what may run where, stored and refused."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators.errors import KernelError, SignatureError
from combinators.operations.dense import candidates, for_platforms, running

ROWS = functools.partial(jnp.sum, axis=0)
X = jnp.asarray(np.arange(12.0).reshape(4, 3), jnp.float32)


def _small(x: Any) -> bool:
    return x.shape[0] < 3


def _operation(*dense: Any, kernel: Any = ROWS) -> Any:
    return tp.Reduce(kernel, "k n -> n", tp.monoids.Sum, dense=list(dense)).operation


def test_the_first_kernel_whose_conditions_hold_is_used() -> None:
    for_half = tp.Dense(jnp.prod, dtypes=(jnp.bfloat16,))
    for_whole = tp.Dense(jnp.max, whole=("n",))
    for_few = tp.Dense(jnp.min, takes=_small)
    operation = _operation(for_half, for_whole, for_few, jnp.mean)

    def first(blocks: Any, cut: Any = ()) -> str:
        return running(operation, [blocks], cut, "result")

    assert first(X) == "max"
    assert first(X.astype(jnp.bfloat16)) == "prod"
    assert first(X, {"n"}) == "mean"
    assert first(X[:2], {"n"}) == "min"
    assert first(X, {"k"}) == ""


def test_kernels_for_platforms_come_before_the_one_that_runs_anywhere() -> None:
    cuda, tpu = tp.Dense(jnp.min, platforms=("cuda", "rocm")), tp.Dense(jnp.max, platforms=("tpu",))
    operation = _operation(cuda, tpu, jnp.mean, tp.Dense(jnp.prod, platforms=("cpu",)))
    assert running(operation, [X], (), "result") == "min on cuda, rocm, max on tpu, else mean"
    assert running(for_platforms(operation, ["cpu"]), [X], (), "result") == "mean"
    assert running(for_platforms(operation, ["tpu"]), [X], (), "result") == "max"
    assert running(for_platforms(operation, ["cuda", "cpu"]), [X], (), "result") == "min on cuda, else mean"
    # An unplanned program is the same everywhere.
    assert [entry.kernel for entry in candidates(operation, [X], (), "result", by_platform=False)] == [jnp.mean]


def test_a_state_kernel_stands_in_for_the_fold_and_is_presented() -> None:
    def twice(state: Any) -> Any:
        return 2 * state

    state = tp.Dense(lambda x: jnp.sum(x, axis=0) + 100, gives="state")
    fold = tp.Reduce(ROWS, "k n -> n", tp.monoids.Sum, present=twice, dense=state)
    np.testing.assert_array_equal(fold(X), 2 * (X.sum(0) + 100))
    assert running(fold.operation, [X], {"k"}, "state") == "lambda"


def test_a_map_takes_conditional_kernels_on_its_whole() -> None:
    double = tp.Dense(lambda x: x + 100, whole=(), dtypes=("float32",))
    program = tp.Map(lambda x: x, "r c -> r c", dense=[double])
    np.testing.assert_array_equal(program(X), X + 100)
    np.testing.assert_array_equal(program(X.astype(jnp.bfloat16)), X)
    np.testing.assert_array_equal(jax.jit(jax.vmap(tp.Map(jnp.sin, "r -> r", dense=tp.Dense(jnp.cos))))(X), jnp.cos(X))


ALIKE = "a kernel in dense= of `sin` does not do what the operation's own does\n  "


def fails(x: Any) -> Any:
    raise ValueError("no such block")


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (lambda x: jnp.sin(x[:1]), "expected float32[4, 3]\n  got float32[1, 3]"),
        (lambda x: jnp.sin(x).astype(jnp.bfloat16), "expected float32[4, 3]\n  got bfloat16[4, 3]"),
        (lambda x: (x, x), "expected float32[4, 3]\n  got float32[4, 3], float32[4, 3]"),
        (lambda x: None, "expected float32[4, 3]\n  got nothing"),
        (lambda x: "x", "expected float32[4, 3]\n  got str"),
        (fails, "it raises ValueError: no such block"),
    ],
    ids=["shape", "dtype", "tree", "nothing", "text", "raises"],
)
def test_a_kernel_that_gives_something_else_is_refused(kernel: Any, text: str) -> None:
    with pytest.raises(KernelError) as caught:
        tp.Map(jnp.sin, "r c -> r c", dense=kernel)(X)
    assert str(caught.value).startswith(ALIKE + text + "\n")


def test_a_kernel_of_another_dtype_is_refused_on_devices() -> None:
    narrow = tp.Dense(lambda x: jnp.sin(x).astype(jnp.bfloat16), whole=())
    graph = tp.trace(tp.Map(jnp.sin, "r c -> r c", dense=narrow), X)
    with pytest.raises(KernelError, match=r"it gives .r c. the dtype bfloat16, and not float32"):
        tp.plan(graph, tp.mesh(data=2), {"r": "data"}).compile().lower()


def test_conditions_are_stored_and_tell_operations_apart() -> None:
    def graph(**conditions: Any) -> tp.Graph:
        return tp.trace(tp.Reduce(ROWS, "k n -> n", tp.monoids.Sum, dense=tp.Dense(ROWS, **conditions)), X)

    found = graph(platforms=("tpu",), dtypes=(jnp.bfloat16, "float32"), whole=["n"])
    again = tp.Graph.from_json(found.to_json())
    assert again.key == found.key != graph(platforms=("tpu",)).key
    node: Any = again.nodes[-1]
    (entry,) = node.operation.dense
    assert (entry.platforms, entry.dtypes, entry.whole) == (("tpu",), ("bfloat16", "float32"), ("n",))


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (
            lambda: tp.Dense(jnp.sin, platforms=("gpu",)),
            KernelError,
            'tp.Dense(sin) names the platform `gpu`\n  Write "cuda" or "rocm", or both.',
        ),
        (
            lambda: tp.Dense(jnp.sin, dtypes=("half of it",)),
            KernelError,
            "tp.Dense(sin): dtypes=('half of it',) names no dtype\n  Write dtypes=(jnp.bfloat16,).",
        ),
        (
            lambda: tp.Dense(jnp.sin, whole=(3,)),  # pyright: ignore[reportArgumentType]
            KernelError,
            "tp.Dense(sin): whole=(3,) holds no names\n  Write a tuple of strings for whole=.",
        ),
        (
            lambda: tp.Dense(jnp.sin, gives="states"),  # pyright: ignore[reportArgumentType]
            KernelError,
            'tp.Dense(sin) gives \'states\'\n  Write gives="result" or gives="state".',
        ),
        (
            lambda: _operation(tp.Dense(jnp.sin, whole=("m",))),
            SignatureError,
            "tp.Reduce(sum), dense= wants `m` whole, which is no dimension of the signature\n"
            "  signature k n -> n\n  Name dimensions of the signature in whole=.",
        ),
        (
            lambda: tp.Map(jnp.sin, "n -> n", dense=tp.Dense(jnp.sin, gives="state")),
            SignatureError,
            'tp.Map(sin), dense= gives a state, and a map has none\n  Leave gives="state" out, or use tp.Reduce.',
        ),
        (
            lambda: _operation(tp.Dense(functools.partial(jnp.add, X))),
            KernelError,
            "tp.Reduce(sum), dense= has a kernel that closes over arrays.\n"
            "  `args[0]` of the partial is an array, float32[4,3]\n  Pass it as an operand.",
        ),
    ],
)
def test_conditions_that_mean_nothing_are_refused(build: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        build()
    assert str(caught.value) == text
