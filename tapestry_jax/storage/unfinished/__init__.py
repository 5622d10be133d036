"""Tensors that are still being written: where they lie until they are whole, and what of them is there.

Read `partial` (how what is written takes its place), then `filled` (which cells are written) and `sums` (a checksum of
them). `regular` opens files in places where others may have put something else meanwhile.
"""
