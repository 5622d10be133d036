"""What users call, and what they get.

`stream` is `tp.stream`; it reads what it was `asked` for, chooses the dimension that was `left_out`, and gives a `job`.
`outputs` are where results of a job go, `extended` is the job for new rows, which goes on from the state of the older
ones, `batches` does so in the folder of a job, `from_cache` runs jobs with `cache=`, of which a `smaller` one may be
left, and `page` is what a job writes of its run. `tune` chooses chunks, by a `trial` of each.
"""
