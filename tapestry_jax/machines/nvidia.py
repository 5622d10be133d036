"""NVIDIA's GPUs, in hosts of eight on one NVLink switch, hosts on InfiniBand with one adapter for each GPU.

Rates of matrix products are those without sparsity, which is half of what the data sheets print. JAX multiplies float32
operands in TensorFloat-32 by default, so that rate stands under `float32`.
"""

from __future__ import annotations

from tapestry_jax.machines.figures import Figure, Link
from tapestry_jax.machines.machine import Machine

_H100 = "NVIDIA H100 Tensor Core GPU data sheet, SXM (nvidia.com/en-us/data-center/h100)"
_HOPPER_PAPER = "NVIDIA H100 Tensor Core GPU Architecture, white paper, SXM5"
_AMPERE_PAPER = "NVIDIA A100 Tensor Core GPU Architecture, white paper"
_H200 = "NVIDIA H200 Tensor Core GPU data sheet, SXM (nvidia.com/en-us/data-center/h200)"
_A100 = "NVIDIA A100 80GB data sheet, SXM (nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf)"
_B200 = "NVIDIA HGX B200 and Blackwell architecture technical brief, 1,000 W"
_DGX_A100 = "NVIDIA DGX A100 data sheet: 8 adapters of 200 Gb/s"
_DGX_H100 = "NVIDIA DGX H100 and H200 data sheets: 8 adapters of 400 Gb/s"
_DGX_B200 = "NVIDIA DGX B200 data sheet: 1,440 GB, 64 TB/s and 8 adapters of 400 Gb/s for 8 GPUs"
_HOP = Figure(2e-6, "a hop of a collective kernel over NVLink", estimate=True)
_NETWORK_HOP = Figure(5e-6, "a hop of a collective over InfiniBand, adapters included", estimate=True)
_START = Figure(2e-6, "launch and tail of a kernel in a captured graph", estimate=True)

_SCHEDULED = (
    "docs/design/accelerators.md: 8 layers under FSDP as jax-cuda12-pjrt 0.10.2 schedules them, pipelined gathers"
)
_HIDES = (("all-gather", Figure(0.94, _SCHEDULED)), ("reduce-scatter", Figure(0.88, _SCHEDULED)))


def _as_of_h100(figure: Figure) -> Figure:
    return Figure(figure.value, "taken to be that of the H100, whose compiler it has", estimate=True)


def _gpu(
    name: str,
    sources: tuple[str, str],
    rates: dict[str, float],
    vector: float,
    memory: tuple[float, float, str],
    cache: Figure,
    nvlink: float,
    adapter: tuple[float, str],
) -> Machine:
    """A GPU; `sources` are those of its rates and of its links."""
    source, sheet = sources
    return Machine(
        name=name,
        platform="cuda",
        matmul=tuple((dtype, Figure(rate, source)) for dtype, rate in rates.items()),
        vector=Figure(vector, source),
        memory=Figure(memory[0], memory[2]),
        bandwidth=Figure(memory[1], memory[2]),
        cache=cache,
        inside=Link("switch", Figure(nvlink, f"{sheet}: half of NVLink's both directions"), _HOP),
        group=8,
        between=Link("switch", Figure(adapter[0], adapter[1]), _NETWORK_HOP),
        start=_START,
        hides=_HIDES if name == "H100" else tuple((kind, _as_of_h100(figure)) for kind, figure in _HIDES),
    )


_HOPPER = {
    "bfloat16": 989.4e12, "float16": 989.4e12, "float32": 494.7e12, "float64": 66.9e12,
    "int8": 1978.9e12, "uint8": 1978.9e12, "float8_e4m3fn": 1978.9e12, "float8_e5m2": 1978.9e12,
}  # fmt: skip
_L2 = Figure(50e6, f"{_HOPPER_PAPER}: second-level cache")
_SAME_L2 = Figure(50e6, "taken to be that of the H100, whose architecture it has", estimate=True)
H100 = _gpu("H100", (_HOPPER_PAPER, _H100), _HOPPER, 66.9e12, (80e9, 3.35e12, _H100), _L2, 450e9, (50e9, _DGX_H100))
"""H100 SXM5, 80 GB."""
H200 = _gpu(
    "H200",
    (f"{_HOPPER_PAPER}; the H200 has its chip", _H200),
    _HOPPER,
    66.9e12,
    (141e9, 4.8e12, _H200),
    _SAME_L2,
    450e9,
    (50e9, _DGX_H100),
)
"""H200 SXM, 141 GB."""
A100 = _gpu(
    "A100",
    (_A100, _A100),
    {"bfloat16": 312e12, "float16": 312e12, "float32": 156e12, "float64": 19.5e12, "int8": 624e12, "uint8": 624e12},
    19.5e12,
    (80e9, 2.039e12, _A100),
    Figure(40e6, f"{_AMPERE_PAPER}: second-level cache"),
    300e9,
    (25e9, _DGX_A100),
)
"""A100 SXM4, 80 GB."""
B200 = _gpu(
    "B200",
    (_B200, _B200),
    {
        "bfloat16": 2250e12,
        "float16": 2250e12,
        "float32": 1100e12,
        "float64": 40e12,
        "int8": 4500e12,
        "uint8": 4500e12,
        "float8_e4m3fn": 4500e12,
        "float8_e5m2": 4500e12,
    },
    80e12,
    (180e9, 8e12, _DGX_B200),
    Figure(126e6, "second-level cache as a driver told it (github.com/pytorch/ao/pull/4002)", estimate=True),
    900e9,
    (50e9, _DGX_B200),
)
"""B200 SXM as in a DGX, 180 GB."""
