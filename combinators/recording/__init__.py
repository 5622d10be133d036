"""A program while it is traced: values that stand for arrays, and the graph that their use writes down.

Read `trace` with `current`, then `value` with `arithmetic`, `slicing`, `reorder` and `remedies`; `paths`, `renaming`
and `pending` are parts of a trace; `carries` and `function` record loops and functions.
"""
