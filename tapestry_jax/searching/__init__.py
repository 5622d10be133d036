"""From a program to a plan: `tp.search`. Called `searching` since `tapestry_jax.search` is the function.

Read `problem`, then `evaluated` (what a candidate comes to), `space` and `choices` (what may be chosen), `candidates`
(from a choice to what would be written by hand), `method` (what finds candidates) and `search`. Methods are
`exhaustive`; `methods` has them by name. `arguments` reads what users write.
"""
