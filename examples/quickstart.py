"""Train a language model under a plan: `python examples/quickstart.py`, then again with `--resume`.

The model and its loss are written once. The plan says that `data` cuts the batch, and `model` the heads, the hidden
units and the vocabulary; what runs is one program for all devices, with the collectives that the table predicts.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict
from typing import Any

import jax
import numpy as np
from searched import NONE, found_beside
from settings import DEFAULT_STEPS, Options, read_options
from text import Tables, Text, held_out_batches, held_out_rows, standard_library, training_batch
from training import compare, loss, make_mesh, optimizer, planned, sample

import tapestry_jax as tp

REPORT_EVERY = 100
PROMPTS = [b"\n    def ", b"\nclass ", b"\nimport ", b"\n    if "]


def main() -> None:
    """Run the demo."""
    options, began = read_options(), time.perf_counter()
    settings, out = options.settings, options.out
    if options.resume and not (out / "checkpoint").is_dir():
        raise SystemExit(f"error: no checkpoint in {(out / 'checkpoint').resolve()}\n  Run once without --resume.")
    mesh = make_mesh(options.mesh)
    text = standard_library()
    print(f"text: {text.files} files, {text.train.size:,} bytes to train on, {text.held_out.size:,} held out")
    tables = Tables.count(text.train, mesh)

    model, plan = planned(settings, mesh)
    plan.verify()
    out.mkdir(parents=True, exist_ok=True)
    (out / "plan.json").write_text(plan.to_json())
    print(plan.explain(grad=True))
    if options.machine != NONE and not options.resume:
        print(*found_beside(plan, options.machine), sep="\n", flush=True)

    if not options.resume:
        shutil.rmtree(out / "checkpoint", ignore_errors=True)
    trainer = tp.nnx.Trainer(loss, model, optimizer(settings.learning_rate), plan, checkpoint=out / "checkpoint")
    count = sum(leaf.size for leaf in jax.tree.leaves(trainer.state.params))
    shown = " x ".join(f"{name}={size}" for name, size in mesh.shape.items())
    print(f"model: {count:,} parameters; mesh: {shown} {mesh.devices.flat[0].platform} devices")
    last, start = begin(trainer, options, text), trainer.steps

    few = held_out_batches(text.held_out, settings.batch, settings.length, 8)
    print(f"step {start}: {compare(trainer, model, few[0])}", flush=True)
    trained = time.perf_counter()

    def report(step: int, found: Any) -> dict[str, float] | None:
        if step % REPORT_EVERY and step < last:
            return None
        held_out = trainer.evaluate(few)["loss"]
        speed = (step - start) * settings.batch * settings.length / (time.perf_counter() - trained)
        told = f"step {step}: loss {found['loss']:.3f}, held out {held_out:.3f}, {speed:,.0f} tokens/s"
        print(f"\n{told}; {compare(trainer, model, few[0])}", flush=True)
        return {"held_out_loss": held_out}

    trainer.fit(
        lambda step: training_batch(text.train, settings.batch, settings.length, settings.seed, step),
        last,
        every=10,
        report=report,
        progress=True,
        save_every=REPORT_EVERY,
    )

    rows = held_out_rows(text.held_out, settings.batch, settings.length, 64)
    final = trainer.evaluate(held_out_batches(text.held_out, settings.batch, settings.length, 64))["loss"]
    tabled = {"bigram": tables.bigram_loss(rows), "trigram": tables.trigram_loss(rows)}
    print(f"held-out loss after {last} steps: {final:.3f} nats per byte, on {rows[..., 2:].size:,} bytes")
    for name, own in tabled.items():
        print(f"  {'below' if final < own else 'not below'} the {name} table of the training text, {own:.3f}")
    trainer.plot(out / "loss.png", {f"{name} table, held out": own for name, own in tabled.items()})
    for drawn in sample(trainer, PROMPTS, settings.length, options.temperature, np.random.default_rng(settings.seed)):
        lines = drawn.decode("latin-1").strip("\n").split("\n")
        print("sample:", *("  | " + printable(line) for line in lines), sep="\n")
    print(f"wrote {out / 'plan.json'}, {out / 'loss.png'} and {out / 'checkpoint'}")
    print(f"{time.perf_counter() - began:.0f} s in all; --resume goes on from step {last}")


def begin(trainer: tp.nnx.Trainer, options: Options, text: Text) -> int:
    """Go on from the checkpoint, if that is wanted; the step to stop at.

    Raises:
      SystemExit: when the checkpoint cannot be read, belongs to another run, or lies past the last step.
    """
    settings: dict[str, Any] = {**asdict(options.settings), "text": text.fingerprint}
    if not options.resume:
        trainer.record = {"settings": settings, "until": options.steps or DEFAULT_STEPS}
        return trainer.record["until"]
    try:
        trainer.restore()
    except tp.TapestryError as error:
        raise SystemExit(f"error: {error}") from error
    there, start = trainer.record["settings"], trainer.steps
    changed = [f"  {name}: {there.get(name)} there, {now} here" for name, now in settings.items() if there[name] != now]
    if changed:
        raise SystemExit("\n".join(["error: the checkpoint belongs to another run", *changed, "  Give its options."]))
    if options.steps is not None and options.steps < start:
        raise SystemExit(f"error: the checkpoint is at step {start}, past --steps {options.steps}\n  Ask for more.")
    print(f"resumed from step {start}")
    until = trainer.record["until"] if trainer.record["until"] > start else start + DEFAULT_STEPS
    trainer.record["until"] = options.steps or until
    return trainer.record["until"]


def printable(line: str) -> str:
    """The line with escapes for what would disturb a terminal."""
    return "".join(c if c.isascii() and c.isprintable() else c.encode("unicode_escape").decode() for c in line)


if __name__ == "__main__":
    main()
