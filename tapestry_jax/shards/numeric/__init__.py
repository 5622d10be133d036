"""Kernels in NumPy: each is traced once for the shapes of its blocks, and what was traced is run equation by equation.

Nothing is compiled, which at sizes of some dozen cells is nearly all of the time. `kernels` traces what an operation
does with blocks, `evaluate` runs a jaxpr, `primitives` says what an equation means: `elementwise`, `movements` with
`indexing`, and `folds` along axes. Primitives that have no entry run in JAX. Which `cells` blocks hold and read, and
how `scans` go on from block to block. `simulated` runs a jaxpr on all `devices` of a mesh at once.
"""
