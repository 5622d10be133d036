"""Train a language model under a plan: `python examples/quickstart.py`, then again with `--resume`.

The model and its loss are written once. The plan says that `data` cuts the batch, and `model` the heads, the hidden
units and the vocabulary; what runs is one program for all devices, with the collectives that the table predicts.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from typing import Any

import jax
import jax.numpy as jnp
from checkpoint import Checkpoints
from flax import nnx
from picture import draw_losses
from searched import NONE, found_beside
from settings import DEFAULT_STEPS, Options, Settings, read_options
from text import SYMBOLS, Tables, Text, held_out_rows, standard_library, training_batch
from tqdm import tqdm
from training import Trainer, loss, sample

import tapestry_jax as tp

PLACEMENT = {"batch": "data", "heads": "model", "mlp": "model", "vocab": "model"}
REPORT_EVERY = 100
PROMPTS = [b"\n    def ", b"\nclass ", b"\nimport ", b"\n    if "]


def main() -> None:
    """Run the demo."""
    options, began = read_options(), time.perf_counter()
    settings, out = options.settings, options.out
    mesh = make_mesh(options.mesh)
    checkpoints = Checkpoints(out / "checkpoint", fresh=not options.resume)
    start, saved = checkpoints.last() if options.resume else (0, None)
    text = standard_library()
    record = open_record(options, text, start, saved)
    print(f"text: {text.files} files, {text.train.size:,} bytes to train on, {text.held_out.size:,} held out")
    tables = Tables.count(text.train, mesh)

    config = tp.nnx.TransformerConfig(settings.layers, settings.embed, settings.heads, SYMBOLS, max_len=settings.length)
    model = tp.nnx.Transformer(config, rngs=nnx.Rngs(settings.seed))
    windows = tp.TensorType({"batch": settings.batch, "seq": settings.length}, jnp.int32)
    graph = tp.trace(loss, model, windows, windows)
    plan = tp.plan(graph, mesh, {dim: axis for dim, axis in PLACEMENT.items() if axis in mesh.shape})
    plan.verify()
    out.mkdir(parents=True, exist_ok=True)
    (out / "plan.json").write_text(plan.to_json())
    print(plan.explain(grad=True))
    if options.machine != NONE and not options.resume:
        print(*found_beside(plan, options.machine), sep="\n", flush=True)

    trainer = Trainer(plan, model, settings)
    count = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model)))
    shown = " x ".join(f"{name}={size}" for name, size in mesh.shape.items())
    print(f"model: {count:,} parameters; mesh: {shown} {mesh.devices.flat[0].platform} devices")
    if options.resume:
        trainer.state = checkpoints.restore(start, trainer.state)
        print(f"resumed from step {start}")
    train(trainer, text, settings, checkpoints, record, start)
    checkpoints.close()

    rows = held_out_rows(text.held_out, settings.batch, settings.length, 64)
    final, tabled = trainer.evaluate(rows), {"bigram": tables.bigram_loss(rows), "trigram": tables.trigram_loss(rows)}
    print(f"held-out loss after {record['until']} steps: {final:.3f} nats per byte, on {rows[..., 2:].size:,} bytes")
    for name, own in tabled.items():
        print(f"  {'below' if final < own else 'not below'} the {name} table of the training text, {own:.3f}")
    draw_losses(out / "loss.png", record["losses"], record["held_out"], final, tabled)
    for drawn in sample(trainer, model, PROMPTS, settings.length, options.temperature):
        lines = drawn.decode("latin-1").strip("\n").split("\n")
        print("sample:", *("  | " + printable(line) for line in lines), sep="\n")
    print(f"wrote {out / 'plan.json'}, {out / 'loss.png'} and {out / 'checkpoint'}")
    print(f"{time.perf_counter() - began:.0f} s in all; --resume goes on from step {record['until']}")


def make_mesh(axes: dict[str, int]) -> Any:
    """A mesh of real devices where there are enough, otherwise of simulated ones."""
    wanted = math.prod(axes.values())
    jax.config.update("jax_num_cpu_devices", wanted)
    devices = jax.devices()
    if len(devices) < wanted:
        devices = jax.devices("cpu")
    # What is not planned runs beside what is.
    jax.config.update("jax_default_device", devices[0])
    return tp.mesh(devices, **axes)


def open_record(options: Options, text: Text, start: int, saved: dict[str, Any] | None) -> dict[str, Any]:
    """What is saved beside the arrays: what the run belongs to, its losses so far, and the step to stop at.

    Raises:
      SystemExit: when the checkpoint belongs to another run, or lies past the last step.
    """
    settings: dict[str, Any] = {**asdict(options.settings), "text": text.fingerprint}
    if saved is None:
        return {"settings": settings, "losses": [], "held_out": [], "until": options.steps or DEFAULT_STEPS}
    there = saved["settings"]
    changed = [
        f"  {name}: {there.get(name)} there, {now} here" for name, now in settings.items() if there.get(name) != now
    ]
    if changed:
        raise SystemExit("\n".join(["error: the checkpoint belongs to another run", *changed, "  Give its options."]))
    if options.steps is not None and options.steps < start:
        raise SystemExit(f"error: the checkpoint is at step {start}, past --steps {options.steps}\n  Ask for more.")
    until = saved["until"] if saved["until"] > start else start + DEFAULT_STEPS
    return {**saved, "until": options.steps or until}


def train(
    trainer: Trainer, text: Text, settings: Settings, checkpoints: Checkpoints, record: dict[str, Any], start: int
) -> None:
    """Train from `start` to the step that the record names; report and save on the way."""
    last, spent = record["until"], 0.0
    few = held_out_rows(text.held_out, settings.batch, settings.length, 8)
    print("step {}: planned loss {:.6f}, unplanned {:.6f}".format(start, *trainer.compare(few[0])), flush=True)
    with tqdm(total=last, initial=start, unit="step", mininterval=1.0) as bar:
        for step in range(start, last):
            began = time.perf_counter()
            value = trainer.train(*training_batch(text.train, settings.batch, settings.length, settings.seed, step))
            spent += time.perf_counter() - began
            record["losses"].append(round(value, 5))
            speed = (step + 1 - start) * settings.batch * settings.length / spent
            bar.set_postfix_str(f"loss {value:.3f}, {speed:,.0f} tokens/s", refresh=False)
            bar.update()
            if (step + 1) % REPORT_EVERY and step + 1 < last:
                continue
            held_out = trainer.evaluate(few)
            record["held_out"].append([step + 1, held_out])
            planned, plain = trainer.compare(few[0])
            checkpoints.save(step + 1, trainer.state, record)
            recent = record["losses"][-REPORT_EVERY:]
            bar.write(
                f"step {step + 1}: loss {sum(recent) / len(recent):.3f}, held out {held_out:.3f}, "
                f"{speed:,.0f} tokens/s; planned loss {planned:.6f}, unplanned {plain:.6f}; checkpoint saved"
            )


def printable(line: str) -> str:
    """The line with escapes for what would disturb a terminal."""
    return "".join(c if c.isascii() and c.isprintable() else c.encode("unicode_escape").decode() for c in line)


if __name__ == "__main__":
    main()
