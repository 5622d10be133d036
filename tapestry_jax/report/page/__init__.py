"""A plan as one page that holds all it shows, for a browser without a network.

Read `drawing` (the graph as the schedule runs it), `scopes` (what is folded), `boxes` (blocks), `times` (a simulated
run) and `alternatives` (other plans), then `document`: all that the page shows, as data. `html` puts it beside the
page's own code, in `assets`; `write` writes the file, and `shown` does all of it. `notebook` is the small table that
notebooks show.
"""
