"""Checkpoints of a run, and how it goes on from one.

Read `saved`, the folder of a run, with `resuming` (where its batches were) and `recent` (what no row of its history
tells yet); then `checkpoints`, what Orbax writes and reads, `folder`, under which names, with `sums` (whether it is
whole) and `first` (of several processes one renames), and `differences` between what is there and what is wanted.
"""
