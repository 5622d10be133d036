"""The pencil FFT: a transform sees all of its axis, `[x]`, so the data change sides between one and the next.

A filter in frequency space: two transforms, a product, and the two transforms back. Under a plan that places `x` the
transforms along `x` take the free rows instead, and each change of sides is an all-to-all. Where `y` is placed the
transforms along `y` take the columns; as the product then lies in rows, it costs two changes more.
"""

from __future__ import annotations

import jax.numpy as jnp
from gallery import Example, Planned, normal, show

import tapestry_jax as tp


def fft_columns(x):
    return jnp.fft.fft(x, axis=-2)


def inverse_columns(x):
    return jnp.fft.ifft(x, axis=-2)


def inverse_rows(x):
    return jnp.fft.ifft(x).real


rows, columns = tp.Map(jnp.fft.fft, "y [x] -> y [x]"), tp.Map(fft_columns, "[y] x -> [y] x")
back_along_y, back_along_x = tp.Map(inverse_columns, "[y] x -> [y] x"), tp.Map(inverse_rows, "y [x] -> y [x]")


@tp.program("y x, y x -> y x")
def filtered(image, transfer):
    return back_along_x(back_along_y(columns(rows(image)) * transfer))


def automatic(image, transfer):
    return jnp.fft.ifft2(jnp.fft.fft2(image) * transfer).real


def example(height: int = 512, width: int = 512) -> Example:
    distance = jnp.hypot(jnp.fft.fftfreq(height)[:, None], jnp.fft.fftfreq(width))
    plans = [
        Planned("pencil FFT", {"x": "data"}),
        Planned("pencil FFT, the product in rows", {"y": "data"}),
        Planned("pencil FFT over two mesh axes", {"x": ("data", "model")}, {"data": 2, "model": 4}),
    ]
    return Example(filtered, (normal(height, width), jnp.exp(-8 * distance)), plans, automatic)


if __name__ == "__main__":
    show(example)
