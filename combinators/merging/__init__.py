"""What a monoid, a frame and a product of monoids are, and how partial states become one.

Read `monoid`, then `frame` and `product`; `extrema` says what attains an extremum; `together`, `blocks`, `pieces` and
`stacked_prefixes` merge many states; `parts` handles states that lie side by side.
"""
