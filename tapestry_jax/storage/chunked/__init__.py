"""Zarr, through TensorStore: arrays whose chunks are files of their own, or ranges of a shard.

Read `zarr`, then `metadata` (what lies beside the chunks) and `futures` (TensorStore's futures and errors as ours).
"""
