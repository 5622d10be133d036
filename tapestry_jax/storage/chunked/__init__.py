"""Zarr, through TensorStore: arrays whose chunks are files of their own, or ranges of a shard.

Read `zarr`, then `metadata` (what lies beside the chunks), `plain` (chunks that need no decoding), `named` (their
files, and which lay there), `gate` (how many are under way), `fetched` (in stores that fsspec reads), `transactional`
(in repositories of Icechunk) and `futures` (the package TensorStore, and its errors as ours).
"""
