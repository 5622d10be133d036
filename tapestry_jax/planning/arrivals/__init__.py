"""Whether an exchange brings every device the cells that its indices read, found anew from what lowering reads.

Read `tables` for exchanges between equal blocks, and `ranges` for those told by ranges of devices.
"""
