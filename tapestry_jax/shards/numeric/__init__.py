"""Kernels in NumPy: each is traced once for the shapes of its blocks, and what was traced is run equation by equation.

Nothing is compiled, which at sizes of some dozen cells is nearly all of the time. `kernels` traces what an operation
does with blocks, which `combinators.equations` runs. Which `cells` blocks hold and read, and how `scans` go on from
block to block. `simulated` runs a jaxpr on all `devices` of a mesh at once.
"""
