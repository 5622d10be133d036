"""The exact method: a factored model of what plans cost, solved as an integer program.

`model` is pure data. `prices` has the price of every operation and change of layout, by the functions that price a
schedule; `placements` says what an operation may choose, `classes` which are the same. `build` walks a program, with
what stands in `homes`, and layers one by one that are computed again as `units`; `operations` makes `picks` of what it
meets, and `values` prices what lies between. `program` writes it as rows, which `highs` hands to the solver; `solve`
says with which of its variables, and what is proved. `asked` writes a solution as a user would, and `milp` is the
method.
"""
