"""Whether two sides agree: exactly, up to conditioned rounding, or in range; and what came of it.

Read `verdict`, then `conditioning` and `noise`, which say how much rounding a program may carry; `outcome` is what is
reported.
"""
