"""What a monoid, a frame and a product of monoids are, and how partial states become one.

Read `monoid`, then `frame` and `product`; `leafwise` says what is meant leaf by leaf, `parts` what lies side by side,
`extrema` what attains an extremum, `chosen` what is merged where not all counts, `careful` what is merged with a pole,
`foreign` which ones others wrote; `together`, `blocks`, `pieces` and `stacked_runs` merge many states.
"""
