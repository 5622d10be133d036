"""Checkpoints of a run, and how it goes on from one.

Read `saved`, the folder of a run, with `resuming` (where its batches were); then `checkpoints`, what Orbax writes and
reads, and `differences` between what is there and what is wanted.
"""
