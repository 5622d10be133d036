"""What XLA says that a compiled program costs: counts, which no busy machine changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tapestry_jax.hlo.collectives import compiled_collectives


def counts(compiled: Any) -> dict[str, float]:
    """FLOPs and bytes accessed of a compiled program, by XLA's cost analysis."""
    found = compiled.cost_analysis()
    found = found[0] if isinstance(found, list) else found
    return {"flops": float(found["flops"]), "bytes": float(found["bytes accessed"])}


def collective_bytes(compiled: Any, mesh: Any) -> Counter[str]:
    """Bytes per device of the collectives of a compiled program, by kind: times their trip counts."""
    total: Counter[str] = Counter()
    for found in compiled_collectives(compiled.as_text(), mesh):
        total[found.kind] += found.bytes * found.times
    return total
