"""A kernel that is no function of its operands is another one under every plan, and refused where it is cut."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp

X = np.linspace(1, 2, 12, dtype=np.float32)


class Counting:
    """Knows how often it was called."""

    calls = 0

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        return x * self.calls


def numbered() -> Callable[[Any], Any]:
    numbers = itertools.count()
    return lambda x: x * next(numbers)


def of_place(x: Any) -> Any:
    """Unplanned there is no such axis."""
    try:
        return x + jax.lax.axis_index("d")
    except NameError:
        return x


def of_mesh(x: Any) -> Any:
    return x * (1 + len(jax.sharding.get_abstract_mesh().axis_names))


def drawn(x: Any) -> Any:
    return x + np.random.rand()  # noqa: NPY002 - what a user may write


IMPURE: dict[str, Any] = {
    "NumPy's numbers": drawn,
    "Python's numbers": lambda x: x * random.random(),
    "a counter": numbered(),
    "a state": Counting(),
    "its device": of_place,
    "the mesh": of_mesh,
    "behind JAX's wrappers": jax.jit(jax.checkpoint(drawn)),
}


def table() -> Callable[[Any], Any]:
    """What is found once and kept is the same afterwards."""
    kept: list[float] = []

    def kernel(x: Any) -> Any:
        if not kept:
            kept.append(3.0)
        return x * kept[0]

    return kernel


@jax.custom_jvp
def own_slope(x: Any) -> Any:
    return jnp.sin(x)


own_slope.defjvp(lambda primals, tangents: (own_slope(*primals), 2 * tangents[0]))


def called_back(x: Any) -> Any:
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


PURE: dict[str, Any] = {
    "a choice of places": lambda x: x * jnp.where(x > 1.5, 2, 3),
    "a table": table(),
    "a rule": own_slope,
    "a callback": called_back,
    "drawn by a key": lambda x: x * jax.random.normal(jax.random.key(3)),
    "a loop": lambda x: jax.lax.fori_loop(0, 3, lambda _, y: y * x, x),
    "platforms": lambda x: jax.lax.platform_dependent(x, cpu=jnp.sin, default=jnp.sin),
}


def planned(kernel: Any) -> Any:
    return tp.plan(tp.trace(tp.Map(kernel, "t -> t"), X), tp.mesh(d=4), {"t": "d"}).compile()(X)


@pytest.mark.parametrize("name", IMPURE)
def test_what_is_no_function_of_its_operands_is_refused_where_it_is_cut(name: str) -> None:
    # What a program reads of a counter has changed since it was traced, where JAX traces it once more in between.
    # A number that is drawn may be one by chance that tells how many cells there are.
    chance = "" if name in ("a counter", "a state", "its device", "the mesh") else "|does not act on each cell"
    with pytest.raises(
        (tp.KernelError, tp.SignatureError), match=rf"is no function of its operands|reads what has changed{chance}"
    ):
        planned(IMPURE[name])


@pytest.mark.parametrize("name", PURE)
def test_functions_are_taken_however_they_are_written(name: str) -> None:
    np.testing.assert_allclose(planned(PURE[name]), tp.Map(PURE[name], "t -> t")(X), rtol=1e-5)


def test_the_error_says_where_and_what_to_do() -> None:
    arrow = tp.Map(Counting(), "t -> t", name="dropped")
    with pytest.raises(tp.KernelError) as caught:
        tp.plan(tp.trace(arrow, X), tp.mesh(d=4), {"t": "d"}).compile()(X)
    assert str(caught.value) == (
        "the kernel of `dropped` is no function of its operands: "
        "it is another program each time, or where a plan runs it\n"
        "  signature t -> t\n"
        "  box t=3\n"
        "  it draws numbers by NumPy or Python, counts its calls, or reads the mesh\n"
        "  Compute from operands alone: random numbers come from tp.random, places from coordinates (`@dim`), "
        "and what changes is an operand."
    )
