"""Freeze and thaw: all that a job needs to go on, in a folder that survives SIGKILL and a power cut.

Read `state` (what is kept), `encoded` (a state as bytes, checked when read), `durable` (files that are there as a
whole or not at all), `folder` (save and load; the last but one is kept), `lock` (one job a folder) and `changed` (what
differs between the job that was frozen and the one that asks).
"""

from tapestry_jax.streaming.frozen.changed import check_unchanged as check_unchanged
from tapestry_jax.streaming.frozen.folder import load as load
from tapestry_jax.streaming.frozen.folder import save as save
from tapestry_jax.streaming.frozen.lock import locked as locked
from tapestry_jax.streaming.frozen.state import Frozen as Frozen
from tapestry_jax.streaming.frozen.state import Position as Position
