"""Kernels that call back: pure ones are held to their boxes, what is printed is left out, and effects are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

import tapestry_jax as tp

X = np.arange(8, dtype=np.float32)


def doubled(block: Any) -> Any:
    return np.asarray(block) * 2


def centred(block: Any) -> Any:
    return np.asarray(block) - np.asarray(block).mean()


def back(function: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda x: jax.pure_callback(function, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def of_long(x: Any) -> Any:
    jax.debug.callback(lambda block: None, x)
    return x * 2 if len(x) > 4 else x


def of_all(x: Any) -> Any:
    jax.debug.callback(lambda block: None, x)
    return x * 2 if len(x) else x


def planned(kernel: Callable[[Any], Any]) -> Any:
    graph = tp.trace(tp.Map(kernel, "t -> t"), X)
    return tp.plan(graph, tp.mesh(data=1), {"t": tp.chunks(2)}).compile()


@pytest.mark.parametrize("kernel", [back(doubled), of_all], ids=["pure", "printed"])
def test_what_takes_each_cell_by_itself_is_taken(kernel: Callable[[Any], Any]) -> None:
    jax.make_jaxpr(planned(kernel))(X)


@pytest.mark.parametrize("kernel", [back(centred), of_long], ids=["pure", "printed"])
def test_what_is_another_for_its_boxes_is_refused(kernel: Callable[[Any], Any]) -> None:
    with pytest.raises(tp.KernelError, match="is not right for a box of any size"):
        jax.make_jaxpr(planned(kernel))(X)


def test_a_callback_that_raises_on_drawn_numbers_is_taken() -> None:
    def picky(block: Any) -> Any:
        raise ValueError

    jax.make_jaxpr(planned(back(picky)))(X)


@pytest.mark.parametrize("ordered", [False, True])
def test_effects_are_refused_where_they_are_cut(ordered: bool) -> None:
    kernel = lambda x: io_callback(doubled, jax.ShapeDtypeStruct(x.shape, x.dtype), x, ordered=ordered)  # noqa: E731
    with pytest.raises(tp.KernelError) as caught:
        jax.make_jaxpr(planned(kernel))(X)
    assert str(caught.value) == (
        "the kernel of `lambda` does more than compute, and is cut: how often it does that, and for which blocks, "
        "would be up to the plan.\n"
        "  signature t -> t\n"
        "  box t=4\n"
        "  Compute in jax.pure_callback, which is held to its boxes, print with jax.debug.print, write [dim] for what "
        "it needs whole, or do not cut these axes."
    )
    tp.plan(tp.trace(tp.Map(kernel, "[t] -> [t]"), X), tp.mesh(data=1), {}).compile()


def test_a_compiled_plan_inside_of_a_kernel_is_told() -> None:
    inner = tp.plan(tp.trace(tp.Map(jnp.sin, "t -> t"), X), tp.mesh(data=1), {}).compile()
    with pytest.raises(tp.MeshError, match="is called inside of a kernel that a plan runs"):
        jax.make_jaxpr(planned(lambda x: inner(x)))(X)
