"""From a schedule to one SPMD program."""
