"""Tensors of a fabric as storage has them, for `tp.stream` and others.

Read `of_version`, then `sources`, which are read, then `sinks`, which are written.
"""
