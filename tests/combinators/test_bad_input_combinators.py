"""Bad input to every combinator: one table, each error by its full text. What has a file of its own is tested there."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import combinators as tp
from combinators import CompositionError, GraphError, KernelError, SignatureError, TapestryError, TensorType

X = np.ones((2, 3), np.float32)
MATMUL = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
CUMSUM = tp.Scan(tp.monoids.Sum, "r t -> r t", over="t")
MOMENTS = tp.fold(tp.aggregators.Moments(), "r c -> c")
SPLIT = tp.rearrange("b (h d) -> b h d", h=3)
EINSUM = tp.einsum("i k, k n -> i n")
TABLE = jnp.ones(3)


def rank(where: str, signature: str, carets: str, expected: int, got: int, operand: int = 0) -> str:
    return (
        f"operand {operand}{where} does not have the axes of its signature.\n"
        f"  {signature}\n"
        f"  {carets}\n"
        f"  expected {expected} axes, got {got}\n"
        f"  Pass an operand with {expected} axes, or change the signature."
    )


def integers_only(x: Any, y: Any) -> Any:
    if not jnp.issubdtype(x.dtype, jnp.integer):
        raise TypeError("integers only")
    return x & y


def reads_table(x: Any) -> Any:
    return x + TABLE


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        # Wrong rank
        (lambda: MATMUL(X[0], X.T), SignatureError, rank(" of `matmul`", "i k, k n -> i n", "^^^", 2, 1)),
        (lambda: CUMSUM(X[0]), SignatureError, rank(" of `scan`", "r t -> r t", "^^^", 2, 1)),
        (lambda: EINSUM(X, X[0]), SignatureError, rank(" of `einsum`", "i k, k n -> i n", "     ^^^", 2, 1, 1)),
        (lambda: MOMENTS(X[0]), SignatureError, rank(" of `Moments`", "r c -> c", "^^^", 2, 1)),
        (lambda: SPLIT(X[0]), SignatureError, rank(" of `rearrange`", "b (h d) -> b h d", "^^^^^^^", 2, 1)),
        # Wrong size
        (
            lambda: EINSUM(X, X),
            SignatureError,
            "operand 1 of `einsum` does not fit its signature.\n"
            "  i k, k n -> i n\n"
            "       ^\n"
            "  its shape is (2, 3)\n"
            "  `k` is 2 here, and 3 by operand 0 of shape (2, 3)\n"
            "  Make the two sizes of `k` equal, or use two names.",
        ),
        (
            lambda: SPLIT(np.ones((2, 4), np.float32)),
            SignatureError,
            "operand 0 of `rearrange` does not fit its signature.\n"
            "  b (h d) -> b h d\n"
            "    ^^^^^\n"
            "  its shape is (2, 4)\n"
            "  4 is no multiple of 3 * d for any `d`\n"
            "  Make the axis divisible, or change the given sizes.",
        ),
        (
            lambda: tp.Map(lambda x: x[:, None], "r c -> r n c")(X),
            SignatureError,
            "the operands of `lambda` do not give the size of `n`.\n"
            "  r c -> r n c\n"
            "           ^\n"
            "  the operands are (2, 3)\n"
            "  Give it by sizes=dict(n=...).",
        ),
        # Wrong dtype
        (
            lambda: tp.trace(MATMUL, X, X.T)(X, X.T.astype(np.int32)),
            SignatureError,
            "`matmul` was traced for other arguments\n"
            "  x1: expected float32(k=3, n=2), got int32(3, 2)\n"
            "  Pass arrays of these sizes and dtypes, or trace again for the new ones.",
        ),
        (
            lambda: tp.Map(integers_only)(X, X),
            KernelError,
            "tp.Map(integers_only) cannot be traced as an elementwise kernel.\n"
            "  tried on float32[4,6], float32[4,6], since a kernel has to be right for a block of any size\n"
            "  TypeError: integers only\n"
            '  Give it a signature, such as tp.Map(integers_only, "... [c] -> ... [c]").',
        ),
        # Wrong name
        (
            lambda: tp.trace(EINSUM, TensorType({"a": 2, "b": 3}), TensorType({"c": 3, "d": 2})),
            CompositionError,
            "cannot apply `einsum`: its `k` is `b` on operand 0 and `c` on operand 1\n"
            "  signature i k, k n -> i n\n"
            "  operand 0: (a, b)\n"
            "  operand 1: (c, d)\n"
            '  Rename one: value.rename(c="b").',
        ),
        (
            lambda: tp.trace(SPLIT, TensorType({"h": 2, "model": 3})),
            CompositionError,
            "`rearrange` meets `h` as two dimensions, `b` and `h`\n"
            "  signature b (h d) -> b h d\n"
            '  Rename one operand first, as in k.rename(h="keys").',
        ),
        (
            lambda: tp.Map(jnp.sin, "x -> x", sizes={"y": 2})(X[0]),
            SignatureError,
            "`x -> x` has no dimension `y` to give a size to.\n"
            "  its dimensions are x\n"
            "  Leave `y` out of the given sizes, or correct its name.",
        ),
        # Folds without a monoid
        (
            lambda: tp.Reduce(jnp.matmul, "i k, k n -> i n", None),
            SignatureError,
            "tp.Reduce(matmul) folds `k` and needs a monoid for it\n"
            "  signature i k, k n -> i n\n"
            "  got no monoid\n"
            "  Pass one of tp.monoids, such as tp.monoids.Sum, or your own tp.Monoid(identity, combine).",
        ),
        (
            lambda: tp.Map(jnp.matmul, "i k, k n -> i n"),
            SignatureError,
            "tp.Map(matmul) folds `k` without a monoid\n"
            "  signature i k, k n -> i n\n"
            "  Use tp.Reduce with a monoid, or write [k] if the kernel needs all.",
        ),
        # Not arrays
        (
            lambda: tp.Map(jnp.sin)(None),
            GraphError,
            "operand 0 of `sin` is not a value of the program\n  got NoneType: None\n"
            "  Pass arrays as arguments of the program; only numbers may stand in it.",
        ),
        (
            lambda: MATMUL([1.0], X),
            GraphError,
            "operand 0 of `matmul` is not a value of the program\n"
            "  got list: [Value(float32())]\n"
            "  Pass arrays as arguments of the program; numbers may stand in arithmetic.",
        ),
        (
            lambda: tp.Map(jnp.sin)("x"),
            GraphError,
            "an argument of `sin` is not an array\n"
            "  expected a jax or numpy array, a number, a jax.ShapeDtypeStruct or a tp.TensorType\n"
            "  got str: 'x'\n"
            "  Convert it with jnp.asarray, or keep what is not an array outside the program.",
        ),
        (
            lambda: tp.Map(jnp.sin)(np.array(["x"])),
            GraphError,
            "a tensor type has a dtype that JAX does not have\n"
            "  got dtype('<U1')\n"
            "  Give a dtype of numbers or booleans, such as jnp.float32.",
        ),
        (
            lambda: tp.TensorType((), jax.random.key(0).dtype),
            GraphError,
            "a tensor type has the dtype of typed random keys\n"
            "  got dtype key<fry>\n"
            "  Write its words: tp.TensorType((2,), jnp.uint32). Keys themselves may be passed as arguments.",
        ),
        (
            lambda: tp.named("h", X),  # pyright: ignore[reportArgumentType]
            GraphError,
            "operand 0 of `named('h')` is not a value of the program\n"
            "  got ndarray: array([[1., 1., 1.],\n"
            "         [1., 1., 1.]], dtype=float32)\n"
            "  Pass arrays as arguments of the program; numbers may stand in arithmetic.",
        ),
        # Kernels that hold arrays
        (
            lambda: tp.Map(reads_table, "c -> c"),
            KernelError,
            "tp.Map(reads_table) has a kernel that closes over arrays.\n"
            "  `TABLE` among the globals of `reads_table` is an array, float32[3]\n"
            "  Pass it as an operand.",
        ),
        (
            lambda: tp.Reduce(functools.partial(jnp.matmul, TABLE), "k -> ", tp.monoids.Sum),
            KernelError,
            "tp.Reduce(matmul) has a kernel that closes over arrays.\n"
            "  `args[0]` of the partial is an array, float32[3]\n"
            "  Pass it as an operand.",
        ),
        (
            lambda: tp.Scan(tp.monoids.Sum, "t -> t", over="t", kernel=functools.partial(jnp.add, X)),
            KernelError,
            "tp.Scan(add) has a kernel that closes over arrays.\n"
            "  `args[0]` of the partial is an array, float32[2,3]\n"
            "  Pass it as an operand.",
        ),
        (
            lambda: tp.Map(jnp.exp, "r c -> r c", dense=[functools.partial(jnp.add, X)]),
            KernelError,
            "tp.Map(exp), dense= has a kernel that closes over arrays.\n"
            "  `args[0]` of the partial is an array, float32[2,3]\n"
            "  Pass it as an operand.",
        ),
    ],
)
def test_bad_input_is_refused(build: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        build()
    assert isinstance(caught.value, TapestryError)
    assert str(caught.value) == text


EMPTY_ROWS, EMPTY_COLUMNS = jnp.ones((0, 3)), jnp.ones((2, 0))


@pytest.mark.parametrize(
    ("arrow", "args", "shape"),
    [
        (tp.Map(jnp.sin), (EMPTY_ROWS,), (0, 3)),
        (tp.Map(jax.nn.softmax, "... [c] -> ... [c]"), (EMPTY_COLUMNS,), (2, 0)),
        (MATMUL, (EMPTY_ROWS, jnp.ones((3, 4))), (0, 4)),
        (MATMUL, (EMPTY_COLUMNS, jnp.ones((0, 4))), (2, 4)),
        (EINSUM, (EMPTY_COLUMNS, jnp.ones((0, 4))), (2, 4)),
        (CUMSUM, (EMPTY_COLUMNS,), (2, 0)),
        (SPLIT, (EMPTY_ROWS,), (0, 3, 1)),
        (tp.fold(tp.aggregators.Max(), "r c -> c"), (EMPTY_ROWS,), (3,)),
        (tp.stack(lambda c, w: c + w, 0), (jnp.ones(3), EMPTY_ROWS), (3,)),
        (tp.program(lambda x, s: (x, s)).feedback("t") >> tp.program(lambda xs, s: xs),
         (EMPTY_ROWS, jnp.ones(3)), (0, 3)),
        (tp.Map(lambda x: x, "(y+[dy]) -> y", sizes={"dy": 1}), (jnp.ones(0),), (0,)),
    ],
)  # fmt: skip
def test_empty_tensors_work(arrow: Any, args: tuple[Any, ...], shape: tuple[int, ...]) -> None:
    result = arrow(*args)
    assert result.shape == shape
    assert not np.isnan(result).any()


@pytest.mark.parametrize("boundary", ["periodic", "reflect", "edge"])
def test_an_empty_tensor_has_no_boundary_to_read(boundary: str) -> None:
    blur = tp.Map(lambda x: x[1:], "(y+[dy]) -> y", sizes={"dy": 2, "y": 3}, boundary=boundary)
    with pytest.raises(SignatureError) as caught:
        blur(jnp.ones(0))
    assert str(caught.value).startswith("operand 0 of `lambda` does not fit its signature.")
