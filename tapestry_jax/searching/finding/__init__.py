"""Methods: what finds candidates for a problem.

Read `rules` (what needs no planning to be left out) and `exhaustive`; then `moves`, `energy` (what is compared),
`descent`, `starts` and `anneal`; `improved` goes on from the integer program, by what can be `altered` there, and with
layers as stages (`staged`); `auto` chooses.
"""
