"""The abstract expression graph, and what is made of it: results, key, text, file.

Read `nodes` and `graph`, then `check` and `evaluate`; `key`, `show`, `html` (for notebooks) and `json` stand alone.
`walk` goes through a graph, loops too; `given` is the part of one that is left where values are known; `scopes` says
which paths lie in which, `difference` where two graphs differ, `opaque` what of a lifted function no rule knows;
`unchanged` holds kernels against what they were when it was traced, by what `computed` tells.
"""
