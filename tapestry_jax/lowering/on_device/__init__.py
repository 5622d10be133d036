"""What one device does with its own pieces: where it is, what it reads, and how it runs a kernel.

Read `here` and `varying`; then `pad`, `taken`, `stripes` and `read`; then `filled`, and `kernels` with `loops`
and `untyped`; `stand_ins` holds kernels to each other; `traced`, `attained` and `ties` look into kernels, and
`recomputed` keeps what was received.
"""
