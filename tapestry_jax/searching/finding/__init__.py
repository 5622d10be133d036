"""Methods: what finds candidates for a problem.

Read `rules` (what needs no planning to be left out) and `exhaustive`; then `moves`, `energy` (what is compared) and
`anneal`; `auto` chooses.
"""
