"""Tensors whose cells lie at fixed places in the bytes of a file.

Read `ranges` (bytes by offset), `strided` (a box of cells in them), then `npy_header` and `npy`. Calls that block run
on `threads`.
"""
