"""What users write: Map, Reduce, Scan, fold, einsum, rearrange, attention, window, random.

Read `leaf` with its `options`, then `map`, `reduce` and `scan` with `scan_ends`; each other makes an operation of its
own: `fold`, `einsum`, `rearrange`, `attention`, `window`, `running`, `index`, `random`, `named`.
"""
