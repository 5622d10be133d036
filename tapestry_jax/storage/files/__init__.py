"""Tensors whose cells lie at fixed places in the bytes of a file.

Read `ranges` (bytes by offset; `address`: those of a server, `objects`: of a store, `folders`: files
below one), `strided` (a box of cells in them) and `laid_out` (a tensor in them, read and written), then the formats:
`npy` with `npy_header`, `npz`, `safetensors`.
Calls that block run on `threads`; `pieces` reads a tensor from end to end, `joined` makes one of several.
"""
