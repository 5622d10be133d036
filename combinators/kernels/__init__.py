"""What may be a kernel, when two are the same, and what they are called: functions, seen from outside.

Read `kernel`, then `names` and `public_names`, then `fingerprint` with `code`; `captured` with `reachable` and
`jaxprs` says what a kernel holds, `elementwise` with `remedy` whether it acts cell by cell, `coordinates` what one that
reads these may leave out; `regrouped` says what a reshape merges and splits;
`immutable` is what values of the library are, `settled` what of a kernel stays as it was,
`named_apart` what instructions are called in compiled programs.
"""
