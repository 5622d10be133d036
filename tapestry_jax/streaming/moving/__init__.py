"""Pieces of a turn on their way: from what is stored to the devices, and back.

Read `views` (which cells a device holds) and `reading`, then `buffers`, `placing` and `feeding` (turns read ahead), and
`writing` (results written behind). `arriving` are rows that come in order (`making` is the thread that waits for them),
and `in_order` says what can read them. `sinks` are what is written, `held` is what passes make and no file
takes, and `spilling` says how long values between passes are there.
"""
