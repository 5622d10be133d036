"""Training a model under a plan."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import jax
import numpy as np
from flax import nnx

from combinators.arguments import read_count, read_flag, read_function
from combinators.errors import message
from tapestry_jax.nnx.training.errors import TrainingError
from tapestry_jax.nnx.training.fitting import Telling, fit, iterator
from tapestry_jax.nnx.training.metrics import NOTHING, Metrics
from tapestry_jax.nnx.training.microbatches import with_microbatches
from tapestry_jax.nnx.training.options import read_filter, read_nan, read_optimizer, read_scale, read_share
from tapestry_jax.nnx.training.plots import plot
from tapestry_jax.nnx.training.precision import read_precision
from tapestry_jax.nnx.training.program import LossProgram, argument_types, check_plan
from tapestry_jax.nnx.training.results import by_path, read_results
from tapestry_jax.nnx.training.rows import Rows
from tapestry_jax.nnx.training.saving.recent import Recent
from tapestry_jax.nnx.training.saving.saved import Saved
from tapestry_jax.nnx.training.stepping.batch import faults_of
from tapestry_jax.nnx.training.stepping.begun import begun, places_begun
from tapestry_jax.nnx.training.stepping.empty import of_no_row
from tapestry_jax.nnx.training.stepping.finite import described, evaluated, stopped
from tapestry_jax.nnx.training.stepping.places import sent
from tapestry_jax.nnx.training.stepping.programs import Programs
from tapestry_jax.nnx.training.stepping.state import TrainState
from tapestry_jax.nnx.training.stepping.step import FAULT, Nan, Stepper
from tapestry_jax.nnx.training.stepping.whole import uninterrupted
from tapestry_jax.plan import Plan


class Trainer:
    """Trains a model: its loss under a plan, gradients and the optimizer's update are one program, of all devices.

    Parameters lie as the plan stores them, and what the optimizer keeps of each lies beside it. All arrays have their
    true shapes, so training gives the same numbers on every mesh. The memory of the old state is given to the new one.

    The loss takes the model and then the arrays of a batch. It returns a scalar, or that and a dictionary, in which a
    scalar is a metric, the mean of the batch, and a pair of scalars a metric as a total and its count. What the model
    writes, such as running statistics, is kept. A last parameter called `step` gets the number of the step, for
    `tp.nnx.Dropout`.

    Args:
      loss: a function of the model and of the arrays of a batch.
      model: with the first parameters; a module of `tp.nnx`, or one of `flax.nnx` whose loss was lifted. It stays as it
        is.
      optimizer: of optax.
      plan: of `tp.trace(loss, model, *types)`, or of `tp.lift`.
      clip: the largest global norm of the gradients; larger ones are scaled down to it.
      microbatches: how many parts of a batch are taken one after the other; the numbers are those of the whole batch.
      ema: how much an exponential mean of the parameters keeps in a step, such as 0.999.
      precision: the dtype in which the program computes, such as `jnp.bfloat16`; parameters and all else stay as they
        are stored. Or a mapping from paths to dtypes, `{"": jnp.bfloat16, "head": None}`: of parameters, of modules
        around them, or names of the batch's arguments; patterns are welcome, and the longest path that fits holds.
      loss_scale: what the loss is multiplied by at first, and gradients divided by, so that they are numbers of
        float16; it finds its size by itself. By default 32,768 where `precision` says float16, else none.
      nan: what is done where the loss, a gradient or an update is not finite: `"stop"` raises, with the state of before
        that step kept; `"skip"` leaves the step out; None looks at nothing, so NaN goes on into the parameters, but
        where the loss is scaled, which leaves such steps out.
      wrt: which variables are trained, a filter of `flax.nnx`.
      checkpoint: the folder of checkpoints, which `fit` writes every `save_every` steps; needs Orbax.
      keep: how many of the newest are kept.

    Attributes:
      plan: of the loss.
      steps: how many steps were taken.
      history: of each report of `fit` the step and the metrics.
      recent: what the steps found that no row of it tells yet.
      record: what else checkpoints hold, as far as JSON can say it.
      skipped: of `nan="skip"`, the steps that were left out, and why.

    Raises:
      TrainingError: when the plan is for another model, the loss returns no scalar, the optimizer needs more than
        gradients, parameters and the loss, or an argument cannot be.
      MeshError: when the mesh of the plan has no devices.

    Example:
      >>> import jax, optax
      >>> import tapestry_jax as tp
      >>> from flax import nnx
      >>> def loss(model, x, y):
      ...     return tp.nnx.mean_squared_error(model(x), y)
      >>> model = tp.nnx.Linear(4, 1, rngs=nnx.Rngs(0))
      >>> x = jax.random.normal(jax.random.key(0), (8, 4))
      >>> plan = tp.plan(tp.trace(loss, model, x, x[:, :1]), tp.mesh(jax.devices()[:1], data=1))
      >>> trainer = Trainer(loss, model, optax.sgd(0.5), plan)
      >>> trainer.fit([(x, x[:, :1])] * 20)["loss"] < 0.5
      True
    """

    def __init__(
        self,
        loss: Callable[..., Any],
        model: nnx.Module,
        optimizer: Any,
        plan: Plan,
        *,
        clip: float | None = None,
        microbatches: int = 1,
        ema: float | None = None,
        precision: Any = None,
        loss_scale: float | None = None,
        nan: Nan = "stop",
        wrt: Any = nnx.Param,
        checkpoint: str | PathLike[str] | None = None,
        keep: int = 2,
    ) -> None:
        check_plan(plan)
        read_function(loss, "loss= of a trainer", TrainingError)
        wrt = read_filter(wrt)
        optimizer, ema, nan = read_optimizer(optimizer, clip), read_share(ema), read_nan(nan)
        self.plan, self.steps, self.skipped = with_microbatches(plan, microbatches), 0, list[str]()
        chosen = read_precision(precision)
        self._program = LossProgram.of(loss, model, self.plan, chosen)
        self._stepper, self._graphdef = Stepper(self._program, optimizer, ema, nan), nnx.graphdef(model)
        self._unseen, self.recent = list[tuple[int, Any, Any]](), Recent()
        self._rows = Rows.of(argument_types(self.plan.graph)[1:])
        scale = read_scale(loss_scale, chosen)
        self._types, self._places = places_begun(model, optimizer, self.plan, wrt, ema=ema is not None, scale=scale)
        self._programs = Programs(self._stepper, loss, self._graphdef, self.plan, self._types, self._places)
        self._paths = list(by_path(self._types.params))
        self._results = read_results(_result_types(self.plan), nnx.state(model), self._types.params)
        self._state = begun(model, optimizer, self._places, wrt, scale)
        self.history, self.record = list[dict[str, float]](), dict[str, Any]()
        keep = read_count(keep, "keep= of a trainer", error=TrainingError)
        self._saved = None if checkpoint is None else Saved.of(checkpoint, keep)

    def __repr__(self) -> str:
        sizes = [leaf.size for leaf in jax.tree.leaves(self._types.params)]
        counts = f"{len(sizes)} array{'s' * (len(sizes) != 1)} of {sum(sizes):,} numbers"
        return f"Trainer({self.plan.graph.name}: {counts}, {self.steps:,} step{'s' * (self.steps != 1)} taken)"

    def step(self, *batch: Any, **named: Any) -> dict[str, Any]:
        """Take one step.

        Args:
          batch: the arrays of a batch, of any size: what the loss takes behind the model. One of no row changes
            nothing but the number of the step.
          named: the same by name.

        Returns:
          Metrics by name, scalars on the mesh: `loss`, what the loss tells beside it, `grad_norm` before clipping, and
          `skipped`. They need not be there yet; `float` waits for them.

        Raises:
          TrainingError: where numbers were not finite and `nan="stop"`. The next step tells it, or whoever asks for
            the state, so that no step waits for the one before it.
        """
        return self._step(self._program.arguments(batch, named))

    def step_on(self, batch: Any) -> dict[str, Any]:
        """Take one step on a batch as `fit` is given it."""
        return self._step(self._program.read(batch), self.recent)

    def _step(self, args: Sequence[Any], recent: Recent | None = None) -> dict[str, Any]:
        if self._rows.are_none(args):
            return self._counted(recent)
        program, places = self._programs.find(args, trains=True)
        given = jax.tree.map(sent, args, places)
        with uninterrupted():
            self._state, metrics = program(self._state, given)
            self.steps += 1
            self._unseen.append((self.steps, metrics, args))
            if recent is not None:
                recent.add(self.steps, metrics, self._rows.count(args))
        while len(self._unseen) > 1:
            self._look_at_first()
        return {name: value for name, value in metrics.items() if name != FAULT}

    def _counted(self, recent: Recent | None) -> dict[str, Any]:
        """A step on a batch without rows: it has its number, and changes nothing."""
        is_guarded, scale = self._stepper.nan is not None, self.state.scale
        scaled = {} if scale is None else {"loss_scale": scale.value}
        skipped = {"skipped": np.bool_(True)} if is_guarded or scaled else {}
        metrics = {**of_no_row(self._results, more=("grad_norm",)), **scaled, **skipped}
        with uninterrupted():
            self._state = replace(self._state, step=sent(np.int32(self.steps + 1), self._places.step))
            self.steps += 1
            if recent is not None:
                recent.add(self.steps, metrics, 0)
        return metrics

    def fit(
        self,
        batches: Iterable[Any] | Callable[[int], Any],
        steps: int | None = None,
        *,
        every: int = 100,
        report: Callable[[int, Mapping[str, float]], Mapping[str, float] | None] | None = None,
        progress: bool = False,
        save_every: int = 1000,
    ) -> dict[str, float]:
        """Take steps until there were `steps` of them in all, or until there are no more batches.

        Args:
          batches: tuples of arrays, or dictionaries by name; or a function of the number of the step that makes one.
            An iterator with `get_state` and `set_state`, as those of Grain, goes on where a checkpoint was written.
          steps: at which step to stop; one that was resumed at step 300 goes on to here.
          every: which steps have a row in `history`, those that it divides, and the last one; `report` is called there.
          report: is given the number of steps taken, and the metrics since it was called before. What it returns, such
            as the loss of held-out batches, is added to the row, under names that are not there yet.
          progress: whether a bar shows how far it is; needs tqdm.
          save_every: after how many steps a checkpoint is written, where there is a folder; and at the end.

        Returns:
          The metrics of all steps taken here: means over all rows, whatever the sizes of batches.

        Raises:
          TrainingError: where numbers are not finite and `nan="stop"`; where `report` returns a name of the metrics;
            as `save` does, where there is a folder of checkpoints.
        """
        told = Telling(every, report, read_flag(progress, "progress= of trainer.fit", TrainingError))
        return fit(self, batches, steps, told, self._saved, save_every)

    def save(self) -> None:
        """Write a checkpoint of this step: all arrays in their true shapes, whatever the mesh; `history` and `record`.

        Where what `fit` was given last says where it is, that is stored as well. A checkpoint of this step that tells
        something else, such as another `record`, is replaced.

        Raises:
          TrainingError: without `checkpoint=`; where the folder holds checkpoints that this trainer neither wrote nor
            found when it was restored; where it cannot be written, and then older ones are as they were; or where
            numbers were not finite and `nan="stop"`.
        """
        self._folder().save(self.state, self.steps, self.told())

    def told(self) -> dict[str, Any]:
        """What a checkpoint holds beside arrays.

        Raises:
          TrainingError: where numbers were not finite and `nan="stop"`.
        """
        _ = self.state  # whether the steps that it tells of gave numbers
        recent = self.recent.told()
        return {"history": self.history, "record": self.record, "recent": recent, "skipped": self.skipped}

    def restore(self, step: int | None = None) -> None:
        """Go on from a checkpoint, which may have been written on another mesh; on the same one, bit by bit.

        Args:
          step: by default the newest one that is whole. Later ones give way to the next that is written.

        Raises:
          TrainingError: without `checkpoint=`; where there is none, or it cannot be read; for one of another model or
            optimizer, with all that differs.
        """
        self._state, self.steps, told = self._folder().restore(step, self._types, self._places)
        self.history, self.record, self._unseen = told["history"], told["record"], []
        self.recent, self.skipped = Recent.of(told.get("recent")), told.get("skipped", [])

    def plot(self, path: str | PathLike[str], levels: Mapping[str, float] | None = None) -> None:
        """Draw the losses of `history` over the steps, as a picture; needs matplotlib.

        Args:
          path: of the file, whose ending says which kind it is.
          levels: lines to compare with, by name.

        Raises:
          TrainingError: without matplotlib, or before there is anything to draw.
        """
        plot(self.history, path, levels)

    def _folder(self) -> Saved:
        if self._saved is None:
            remedy = 'Write tp.nnx.Trainer(..., checkpoint="run/").'
            raise TrainingError(message("the trainer was given no folder for checkpoints", remedy=remedy))
        return self._saved

    def evaluate(self, batches: Iterable[Any]) -> dict[str, float]:
        """The metrics of batches, without training on them: means over all rows, whatever the sizes of batches.

        The model is that of `model.eval()`: nothing is dropped, and norms use what ran along. Where that is another
        program than the one that is trained, it is planned by what the plan was asked for.

        A loss that is not finite is given as it is. A `RuntimeWarning` says of which batches it is, and what the first
        of them holds, unless `nan=None`.

        Args:
          batches: tuples of arrays, or dictionaries by name, one after the other.

        Raises:
          TrainingError: for what are no batches, such as a function; where numbers of a step before were not finite and
            `nan="stop"`.
        """
        found, wrong = NOTHING, list[tuple[int, Any]]()
        for number, batch in enumerate(iterator(batches, "trainer.evaluate"), 1):
            args = self._program.read(batch)
            if self._rows.are_none(args):
                found += Metrics.of(of_no_row(self._results), 0)
                continue
            program, places = self._programs.find(args, trains=False)
            told = program(self.state, jax.tree.map(sent, args, places))
            # One batch at a time: simulated devices share few threads, and programs in flight together can starve.
            found += Metrics.of(told, self._rows.count(args))
            if self._stepper.nan is not None and not np.isfinite(float(told["loss"])):
                wrong.append((number, None if wrong else args))
        if wrong:
            args = wrong[0][1]
            batch = faults_of(self.plan_of(*args).graph, args)
            warnings.warn(evaluated([number for number, _ in wrong], batch), RuntimeWarning, stacklevel=2)
        return found.read()

    @property
    def state(self) -> TrainState:
        """All arrays, as they are after the last step; the next step takes their memory.

        Raises:
          TrainingError: where numbers were not finite and `nan="stop"`.
        """
        while self._unseen:
            self._look_at_first()
        return self._state

    @property
    def model(self) -> Any:
        """The model with the parameters of now, which is a copy; on the mesh, where the plan stores them."""
        held = nnx.merge_state(self.state.params, self.state.rest)
        return nnx.merge(self._graphdef, jax.tree.map(jax.numpy.copy, held))

    def plan_of(self, *batch: Any, **named: Any) -> Plan:
        """The plan of the loss for a batch of some sizes, in the dtypes that it computes in; arrays or their types."""
        return self._programs.plan_of(self._program.arguments(batch, named))

    def rows(self, batch: Any) -> int:
        """The rows of a batch: the size of the dimension with which most of its arrays begin."""
        return self._rows.count(self._program.read(batch))

    def _look_at_first(self) -> None:
        """See whether the first step that was not looked at gave numbers; waits for it."""
        step, metrics, args = self._unseen[0]
        fault = np.asarray(metrics.get(FAULT, 0))
        if not fault.any():
            self._unseen.pop(0)
            return
        # Ctrl-C in here leaves it to be looked at.
        words = described(fault, self._paths)
        batch = faults_of(self.plan_of(*args).graph, args)
        if self._stepper.nan == "skip":
            with uninterrupted():
                self._unseen.pop(0)
                self.skipped.append(f"step {step}: {'; '.join((words[0], *batch[:1], *words[1:]))}")
            return
        with uninterrupted():
            # No step after it changed anything, since the fault is part of the state: taken out, training may go on.
            self._state = replace(self._state, fault=sent(np.zeros(2, np.int32), self._places.fault))
            self.steps, self._unseen = step - 1, []
            self.recent.forget(self.steps)
        raise stopped(step, words, batch)


def _result_types(plan: Plan) -> Any:
    types = [plan.graph.type_of(ref).struct for _, ref in plan.graph.outputs]
    return jax.tree.unflatten(plan.graph.out_tree, types)
