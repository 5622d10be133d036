"""Plans as pure data: placements, layouts, the schedule of one program, and what it will communicate.

Read `planned`, planning in one sentence, and then as it does: `asked` (what a user wrote, by `entries`), `rewrites` of
the graph, `scheduling`, `refining` of the schedule; then what is read off it, `prediction`, `proof` with `arrivals`,
`pricing` on a machine, and the `timeline` of a run there. `geometry`, `folding` and `derivatives` are what all of these
speak of.
"""
