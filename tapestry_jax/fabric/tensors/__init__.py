"""What a tensor is, without its numbers.

Read `records` (versions, blocks, operations) and `boxes`, then `casting` and `names`.
"""
