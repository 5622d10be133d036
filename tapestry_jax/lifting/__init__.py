"""An ordinary JAX function to a graph, through its jaxpr.

Read `lift` with `callables`; `walk` writes the equations down as steps (`values`, `constants`) by the `table` of
`rules` and `control`, which are written with `kernels`; where `trees` finds a scan, several equations are one.
`finding` makes many steps one; `dims` and `assign` find which axes are one dimension, `emit` records the graph. `onto`
does so in the middle of another program.
"""

from __future__ import annotations

from tapestry_jax.lifting.lift import lift as lift
