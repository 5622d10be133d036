"""The pencil FFT: each transform along a whole axis, the rows over a mesh axis, then the columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import P, lax

import tapestry_jax as tp
from benchmarks.loom import Case, Targets
from benchmarks.loom import rows as rows_of
from benchmarks.row import Row

AXIS = "data"


def fft_columns(x: Any) -> Any:
    """The transform along the first axis."""
    return jnp.fft.fft(x, axis=0)


along_x = tp.Map(jnp.fft.fft, "y [x] -> y [x]")
along_y = tp.Map(fft_columns, "[y] x -> [y] x")


@tp.program("y x -> y x")
def fft2(image):
    return along_y(along_x(image))


def case(size: int = 1024, back: bool = False) -> Case:
    """A square image whose rows lie on eight devices.

    The plan names `x` alone: along `x` no device could work by itself, so that this transform takes its rows.

    Args:
      size: of an edge.
      back: whether rows lie on devices afterwards too, which takes a second exchange; otherwise columns do.
    """
    real, imaginary = (jax.random.normal(jax.random.key(seed), (size, size)) for seed in (0, 1))
    return Case(
        f"fft2 {size} x {size}, {'rows to rows' if back else 'rows to columns'}",
        fft2,
        (lax.complex(real, imaginary),),
        {"x": AXIS},
        jnp.fft.fft2,
        lambda mesh: by_hand(mesh, back),
        {AXIS: 8},
        (P(AXIS),),
        P(AXIS) if back else P(None, AXIS),
        options={"outputs": {"y": {"y": AXIS}}} if back else {},
    )


def by_hand(mesh: Any, back: bool) -> Callable[..., Any]:
    """Each device transforms its rows, sends every other one its part of them, and transforms its columns."""

    def run(image: Any) -> Any:
        columns = lax.all_to_all(jnp.fft.fft(image), AXIS, 1, 0, tiled=True)
        result = jnp.fft.fft(columns, axis=0)
        return lax.all_to_all(result, AXIS, 0, 1, tiled=True) if back else result

    return jax.shard_map(run, mesh=mesh, in_specs=P(AXIS), out_specs=P(AXIS) if back else P(None, AXIS))


def rows(rounds: int = 20) -> list[Row]:
    """Both cases; every exchange sends what a device holds."""
    nothing_else = {"all-gather": 0, "all-reduce": 0}
    once = Targets(automatic=1 / 3, collectives={"all-to-all": 1, **nothing_else}, sent=1_100_000)
    twice = Targets(automatic=1 / 3, collectives={"all-to-all": 2, **nothing_else}, sent=2_200_000)
    return [*rows_of(case(), once, rounds), *rows_of(case(back=True), twice, rounds)]
