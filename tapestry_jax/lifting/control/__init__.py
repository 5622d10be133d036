"""Control flow: what is repeated, and what is chosen.

Read `loops`, whose bodies stay programs of the graph; then `inside`, a program lifted on its own and what of it can be
cut, `kernel`, which runs one on blocks, and `branches` with conditions: `while` and `cond`; `until` is a `while` as a
loop of the graph; then `prefixes`, scans by an associative function, which `trees` finds, with the `monoids` that such
functions are, and `reduced`, reductions by one; `derived`, functions with a derivative of their author's; and `solves`,
linear solves.
"""
