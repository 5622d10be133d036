"""Tensors of a fabric as storage has them, for `tp.stream` and others.

Read `of_version`, then `sources`, which are read, `sinks`, which are written, `finished` (those that are whole), and
`saved` (exports of whole files).
"""
