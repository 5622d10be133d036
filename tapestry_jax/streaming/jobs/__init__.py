"""What users call, and what they get.

`stream` is `tp.stream`; it reads what it was `asked` for, and gives a `job`. `outputs` are where results of a job go,
and `extended` is the job for new rows, which goes on from the state of the older ones.
"""
