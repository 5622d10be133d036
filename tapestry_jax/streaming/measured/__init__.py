"""What a run measures, and what is shown of it.

`metrics` counts bytes, time, waiting and depth of every stage, with `spans` of time, and what memory is `resident`,
of which `given_back` gives back what nobody uses; `progress` is the bar.
"""
