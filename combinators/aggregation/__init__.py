"""What an aggregator is: lift, fold, present; by key, by segment, masked.

Read `aggregator` with its `functions`, then `inputs`; then `grouped` and `segments`.
"""
