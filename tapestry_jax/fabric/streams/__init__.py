"""Tensors of a fabric as storage has them, for `tp.stream` and others.

Read `sources`, which are read, then `sinks`, which are written.
"""
