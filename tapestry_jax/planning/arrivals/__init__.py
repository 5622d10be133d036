"""Whether an exchange brings every device the cells that its indices read, found anew from what lowering reads.

Read `tables` for exchanges between equal blocks, and `ranges` for those between blocks of two sizes.
"""
