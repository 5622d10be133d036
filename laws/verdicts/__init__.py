"""Whether two sides agree: exactly, up to conditioned rounding, or in range; and what came of it.

Read `verdict`, then `conditioning` and `noise`, which say how much rounding a program may carry, and `coarse`, which
judges programs in less than float32 by the latter alone. `wide` runs a program in float64 whatever its steps ask for,
`rounded` rounds one of these, and `contracted` says which are one number however often they are computed. `outcome` is
what is reported.
"""
