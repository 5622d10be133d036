"""Plain data from which arguments are built: it prints, shrinks and is stored.

Read `cells`, then `states` (programs over a monoid's operations) and `operands` (arrays by domain and seed) with
`ties`; `listed` is what users give instead.
"""
