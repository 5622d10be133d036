"""Google's TPUs: chips on a torus (a pod), pods on the data centre's network. One device is one chip.

JAX rounds float32 operands of products to bfloat16 there by default, so that rate stands under `float32`. The rate of
a link is that of one direction, `bf16` and `int8` rates are those of Cloud TPU's pages. v4 has two devices a chip for
JAX's compile-only meshes; figures are the chip's.
"""

from __future__ import annotations

from tapestry_jax.machines.figures import Figure, Link
from tapestry_jax.machines.machine import Machine

_BOOK = "How to Scale Your Model, part 2 (jax-ml.github.io/scaling-book/tpus)"
_SHARDING = "How to Scale Your Model, part 3: about 1 us a hop (jax-ml.github.io/scaling-book/sharding)"
_NETWORK_HOP = Figure(10e-6, "a hop over the data centre's network", estimate=True)
_START = Figure(0.3e-6, "some hundred cycles around a fusion, as libtpu counts the smallest ones", estimate=True)
_GIB = 2.0**30


def _tpu(
    name: str,
    page: str,
    rates: tuple[float, float | None],
    vector: tuple[float, str],
    memory: tuple[float, float],
    link: float,
    network: float,
    pod: int,
    torus: int,
) -> Machine:
    source = f"Cloud TPU documentation, {page}"
    bf16 = Figure(rates[0], source)
    matmul = [("bfloat16", bf16), ("float32", bf16), ("float16", bf16)]
    if rates[1] is not None:
        matmul += [("int8", Figure(rates[1], source)), ("uint8", Figure(rates[1], source))]
    return Machine(
        name=name,
        platform="tpu",
        matmul=tuple(matmul),
        vector=Figure(vector[0], vector[1], estimate=True),
        memory=Figure(memory[0], source),
        bandwidth=Figure(memory[1], source),
        cache=Figure(128 * 2.0**20, f"VMEM of a v5e ({_BOOK}); of the others taken to be the same", name != "v5e"),
        inside=Link("torus", Figure(link, f"{_BOOK}: one way"), Figure(1e-6, _SHARDING)),
        group=pod,
        between=Link("switch", Figure(network, f"{_BOOK}: network for each TPU"), _NETWORK_HOP),
        start=_START,
        torus=torus,
        # Chips for training close an axis of any multiple of 4, those for inference one of 16 only.
        closes=4 if torus == 3 else 16,
    )


def _lanes(cores: int, clock: float) -> tuple[float, str]:
    """One operation a cycle in each of 8 x 128 lanes: of their four units compilers rarely fill more than one."""
    return cores * 8 * 128 * clock, f"8 x 128 lanes ({_BOOK}), {cores} at {clock / 1e9:g} GHz, one operation a cycle"


V4 = _tpu("v4", "v4", (275e12, 275e12), _lanes(2, 1.05e9), (32 * _GIB, 1.2e12), 45e9, 6.25e9, 4096, 3)
"""TPU v4."""
V5E = _tpu("v5e", "v5e", (197e12, 393e12), _lanes(1, 1.5e9), (16e9, 819e9), 45e9, 3.125e9, 256, 2)
"""TPU v5e."""
V5P = _tpu("v5p", "v5p", (459e12, 918e12), _lanes(2, 1.75e9), (95 * _GIB, 2.765e12), 90e9, 6.25e9, 8960, 3)
"""TPU v5p."""
V6E = _tpu("v6e", "v6e (Trillium)", (918e12, 1836e12), _lanes(1, 1.75e9), (32e9, 1.64e12), 90e9, 12.5e9, 256, 2)
"""TPU v6e."""
