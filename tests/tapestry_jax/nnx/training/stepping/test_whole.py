"""Ctrl-C leaves no half of a step."""

from __future__ import annotations

import os
import signal
import threading

import jax
import numpy as np
import optax
import pytest
from flax import nnx

import tapestry_jax as tp
from tapestry_jax.nnx.training.stepping.whole import uninterrupted


def loss(model, x, y):
    return tp.nnx.mean_squared_error(model(x), y)


def test_ctrl_c_in_a_step_comes_behind_it(monkeypatch: pytest.MonkeyPatch):
    model, x = tp.nnx.Linear(4, 4, rngs=nnx.Rngs(0)), np.eye(4, dtype="float32")
    trainer = tp.nnx.Trainer(
        loss, model, optax.sgd(0.1), tp.plan(tp.trace(loss, model, x, x), tp.mesh(jax.devices()[:1], data=1))
    )
    before, compiled = signal.getsignal(signal.SIGINT), trainer._programs.find

    def interrupted(args, *, trains):
        program, places = compiled(args, trains=trains)

        def run(state, given):
            found = program(state, given)  # takes the memory of the old state
            os.kill(os.getpid(), signal.SIGINT)
            return found

        return run, places

    trainer.step(x, x)
    monkeypatch.setattr(trainer._programs, "find", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit([(x, x)])
    assert trainer.steps == int(trainer.state.step) == 2
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_hears_no_signals():
    done = []

    def work():
        with uninterrupted():
            done.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [1]
