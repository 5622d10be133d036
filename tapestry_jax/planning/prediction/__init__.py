"""What a schedule sends: kinds, axes, bytes and counts, forwards and backwards.

Read `collective`, then `flow`, `recomputed` and `once`, loops that need no second pass, then `conversions` and
`operations`, and `collectives`, which goes through steps and loops; `bounds` says where a number is an upper one,
`turning` what differs from turn to turn of a loop, `multiplied` what gradients meet on their ways, `platform` what a
compiler runs in the place of a collective. `alive` counts the bytes of values that are alive at each step,
`turns_apart` refuses loops in which devices would wait for those that have left them.
"""
