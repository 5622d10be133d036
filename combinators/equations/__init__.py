"""A program of JAX in NumPy: what was traced is run equation by equation, and nothing is compiled; and loops of JAX.

At sizes of some dozen cells compiling is nearly all of the time. `evaluate` runs a jaxpr, `primitives` says what an
equation means: `elementwise`, `movements` with `indexing`, and `folds` along axes. Primitives that have no entry run
in JAX. `effort` counts the equations that are run, so that a loop that does not end is left. `callbacks` says what is
done where a program calls back, `deciding` which equations choose by numbers. `scanned` runs loops in JAX, by the
equations of their turns, and `marked` says what their backward passes keep. From a `silent` function nothing comes
back where nothing comes to it; `steep` programs are those of which something would.
"""
