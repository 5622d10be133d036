"""What lifted operations run on blocks: plain data about primitives of JAX.

Read `primitives`, then `cells` with `derivatives`; `reshape` splits and merges axes, `resized` takes sizes from blocks,
`equations` runs what no rule knows; `products` is for contractions and convolutions, `grouped` for those of rows in
groups, `attention` for what is folded with softmax, `scanned` for scans by functions of users, `bits` are monoids of
whole numbers, `lookup` and `scatter` are for primitives of these names.
"""
