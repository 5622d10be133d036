"""Tensors of a fabric as storage has them: `sources` are read by `tp.stream`, `sinks` are written."""
