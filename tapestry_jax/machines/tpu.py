"""Google's TPUs: chips on a torus (a pod), pods on the data centre's network. One device is one chip.

JAX rounds float32 operands of products to bfloat16 there by default, so that rate stands under `float32`. The rate of
a link is that of one direction. v4 has two devices a chip for JAX's compile-only meshes; figures are the chip's.
"""

from __future__ import annotations

from tapestry_jax.machines.figures import Figure, Link
from tapestry_jax.machines.machine import Machine

_BOOK = "How to Scale Your Model, part 2 (jax-ml.github.io/scaling-book/tpus)"
_SHARDING = "How to Scale Your Model, part 3: about 1 us a hop (jax-ml.github.io/scaling-book/sharding)"
_NETWORK_HOP = Figure(10e-6, "a hop over the data centre's network", estimate=True)
_START = Figure(1.2e-6, "a fusion of one tile, as libtpu 0.0.42.1 estimates it: 1,824 cycles of a v5e", estimate=True)
_REACHED = "what libtpu 0.0.42.1 expects sums of three arrays to reach (docs/design/cost.md)"
_GIB = 2.0**30
_SCHEDULED = "docs/design/accelerators.md: 8 layers under FSDP as libtpu 0.0.42.1 schedules them"
_GATHERS = ("all-gather", Figure(0.75, _SCHEDULED))
# Of others all transfers wait, unless options are given that the compiler calls unsafe there.
_HIDES = {"v5e": (_GATHERS,)}


def _tpu(
    name: str,
    page: str,
    rates: tuple[float, float],
    vector: tuple[float, str],
    memory: tuple[float, float, float],
    link: float,
    network: Figure,
    pod: int,
    torus: int,
) -> Machine:
    source = f"Cloud TPU documentation, {page}"
    bf16 = Figure(rates[0], source)
    half = Figure(rates[0], "taken to be that of bfloat16", estimate=True)
    matmul = [("bfloat16", bf16), ("float32", bf16), ("float16", half)]
    # The page of v5p says nothing of integers.
    int8 = Figure(rates[1], _BOOK if name == "v5p" else source)
    matmul += [("int8", int8), ("uint8", int8)]
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
        between=Link("switch", network, _NETWORK_HOP),
        start=_START,
        torus=torus,
        # Chips for training close an axis of any multiple of 4, those for inference one of 16 only.
        closes=4 if torus == 3 else 16,
        hides=_HIDES.get(name, ()),
        reached=Figure(memory[2], _REACHED, estimate=True),
    )


def _lanes(cores: int, clock: float) -> tuple[float, str]:
    """One operation a cycle in each of 8 x 128 lanes of four units: libtpu expects long kernels to fill them."""
    rate = 4 * cores * 8 * 128 * clock
    return rate, f"8 x 128 lanes of four units ({_BOOK}), {cores} at {clock / 1e9:g} GHz, one operation a cycle"


def _nics(page: str, rate: float, told: str) -> Figure:
    """What each chip has of its host's adapters for the data centre's network."""
    return Figure(rate, f"Cloud TPU documentation, {page}: {told}")


_NETWORK_V4 = Figure(6.25e9, "network for each TPU, taken to be that of a v5p", estimate=True)
V4 = _tpu("v4", "v4", (275e12, 275e12), _lanes(2, 1.05e9), (32 * _GIB, 1.2e12, 0.78), 45e9, _NETWORK_V4, 4096, 3)
"""TPU v4."""
V5E = _tpu(
    "v5e",
    "v5e",
    (197e12, 393e12),
    _lanes(1, 1.5e9),
    (16e9, 819e9, 0.81),
    45e9,
    _nics("v5e", 3.125e9, "2 x 100 Gb/s a host of 8"),
    256,
    2,
)
"""TPU v5e."""
V5P = _tpu(
    "v5p",
    "v5p",
    (459e12, 918e12),
    _lanes(2, 1.75e9),
    (95 * _GIB, 2.765e12, 0.72),
    90e9,
    _nics("v5p", 6.25e9, "50 Gb/s a chip"),
    8960,
    3,
)
"""TPU v5p."""
V6E = _tpu(
    "v6e",
    "v6e (Trillium)",
    (918e12, 1836e12),
    _lanes(1, 1.75e9),
    (32e9, 1.64e12, 0.88),
    90e9,
    _nics("v6e (Trillium)", 12.5e9, "4 x 200 Gb/s a host of 8"),
    256,
    2,
)
"""TPU v6e."""
