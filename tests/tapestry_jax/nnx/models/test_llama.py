"""Llama on the tensors of published checkpoints: equal to a plain implementation in value and gradient."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import save_file

import tapestry_jax as tp
from tapestry_jax.nnx.models import Llama, LlamaConfig
from tests.simulated.sampled import computed
from tests.tapestry_jax.nnx.models import llama_reference as reference
from tests.tapestry_jax.nnx.models.llama_reference import CONFIG, LLAMA3

TOKENS = np.random.default_rng(1).integers(0, 23, (2, 40)).astype(np.int32)
KINDS = {
    "grouped, llama3": ({"rope_scaling": LLAMA3}, {}),
    "tied, biased, linear": (
        {"tie_word_embeddings": True, "attention_bias": True, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        {"stacked": False},
    ),
}


def loaded(folder, weights, config, **options):
    """The model that a folder of a checkpoint gives; the weights lie in two files."""
    (folder / "config.json").write_text(json.dumps(config))
    names = sorted(weights)
    for number, part in enumerate((names[::2], names[1::2]), 1):
        # The format keeps the order of memory, and nothing of strides.
        held = {name: np.ascontiguousarray(weights[name]) for name in part}
        save_file(held, folder / f"model-0000{number}-of-00002.safetensors")
    return Llama.from_safetensors(folder, LlamaConfig.from_hugging_face(folder, **options))


@pytest.mark.parametrize("kind", KINDS)
def test_llama_equals_a_plain_one_on_the_tensors_of_a_checkpoint(kind, tmp_path):
    extra, options = KINDS[kind]
    config = CONFIG | extra
    weights = reference.tensors(config)
    model = loaded(tmp_path, weights, config, **options)

    def slopes(run):
        def score(given):
            made = run(given)
            return reference.entropy(made, TOKENS), made

        return jax.grad(score, has_aux=True)

    wanted, expected = computed(slopes(lambda held: reference.logits(held, config, TOKENS)), weights)
    graph = tp.trace(model, TOKENS)
    found, made = computed(slopes(lambda state: graph(state, TOKENS)), nnx.state(model))
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)
    # Gradients have the layouts of what they belong to: read as weights they are those of the model.
    grads = nnx.state(loaded(tmp_path, {name: np.asarray(g) for name, g in wanted.items()}, config, **options))
    for (path, a), b in zip(jax.tree.leaves_with_path(found), jax.tree.leaves(grads), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5, err_msg=jax.tree_util.keystr(path))


def test_llama_reads_bfloat16_into_the_dtype_that_is_asked_for(tmp_path):
    weights = {name: array.astype(jnp.bfloat16) for name, array in reference.tensors(CONFIG).items()}
    narrow = loaded(tmp_path, weights, CONFIG, param_dtype=jnp.bfloat16)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(nnx.state(narrow))} == {"bfloat16"}
    wide = loaded(tmp_path, weights, CONFIG)
    head = weights["lm_head.weight"].T.astype(np.float32)
    np.testing.assert_array_equal(wide.head.kernel[...], head)
    np.testing.assert_array_equal(narrow.head.kernel[...].astype(np.float32), head)


def test_llama_is_planned_before_there_are_weights_which_are_then_read_where_they_lie(tmp_path, mesh2x4):
    weights = reference.tensors(CONFIG)
    model = loaded(tmp_path, weights, CONFIG)
    graph = tp.trace(Llama.abstract(model.config), tp.TensorType({"batch": 2, "seq": 40}, jnp.int32))
    assert graph.key == tp.trace(model, TOKENS).key
    plan = tp.fsdp(tp.plan(graph, mesh2x4, {"batch": "data", "mlp": "model"}), "data", smallest=64)
    placed = Llama.from_safetensors(tmp_path, model.config, shardings=plan.in_shardings[0])
    up = placed.decoder.layer.mlp.up.kernel[...]
    assert up.addressable_shards[0].data.size * 8 == up.size
    np.testing.assert_allclose(plan.compile()(nnx.state(placed), TOKENS), model(TOKENS), rtol=1e-4, atol=1e-5)


@pytest.mark.thorough
def test_llama_starts_as_layer_by_layer():
    sizes = {"layers": 2, "embed": 8, "heads": 2, "vocab": 5, "mlp": 6}
    stacked = Llama(LlamaConfig(**sizes), rngs=nnx.Rngs(0))
    plain = Llama(LlamaConfig(**sizes, stacked=False), rngs=nnx.Rngs(0))
    np.testing.assert_array_equal(
        stacked.decoder.layer.mlp.up.kernel[1], plain.decoder[1].mlp.up.kernel[...], strict=True
    )
    np.testing.assert_array_equal(stacked.head.kernel[...], plain.head.kernel[...])


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"layers": 0, "mlp": 1.5}, "LlamaConfig: no such model\n  layers is 0, expected at least 1\n  mlp is 1.5"),
        ({"heads": 3}, "heads is 3, which does not divide embed, 8"),
        ({"num_key_value_heads": 3}, "num_key_value_heads is 3, which does not divide heads, 2"),
        ({"head_dim": 3}, "head_dim is 3, expected an even size"),
        ({"epsilon": 0.0}, "epsilon is 0.0, expected a positive number"),
        ({"rotary_scaling": {"factor": 8.0}}, "expected a RotaryScaling"),
    ],
)
def test_llama_sizes_that_do_not_fit_are_refused(fields, expected):
    with pytest.raises(tp.GraphError) as error:
        LlamaConfig(**({"layers": 2, "embed": 8, "heads": 2, "vocab": 5, "mlp": 6} | fields))
    assert expected in str(error.value)


def test_llama_configurations_are_read_as_data_and_all_that_is_wrong_is_told(tmp_path):
    wrong = {name: value for name, value in CONFIG.items() if name != "vocab_size"}
    wrong |= {
        "rms_norm_eps": None,
        "hidden_act": "gelu",
        "sliding_window": 4096,
        "rope_scaling": {"rope_type": "yarn", "factor": 2.0},
    }
    with pytest.raises(tp.FormatError) as error:
        LlamaConfig.from_hugging_face(wrong)
    assert str(error.value).splitlines() == [
        "this configuration is not that of a Llama",
        "  missing: `vocab_size`",
        "  unknown: `sliding_window`, 4096",
        "  `hidden_act` is 'gelu', expected 'silu' or 'swish'",
        "  `rms_norm_eps` is None",
        "  `rope_scaling` is of the kind 'yarn', expected one of default, linear, llama3",
        "  Pass the config.json of a Llama, or write a LlamaConfig.",
    ]
    (tmp_path / "config.json").write_text("[1, 2")
    with pytest.raises(tp.FormatError, match="no JSON"):
        LlamaConfig.from_hugging_face(tmp_path)
    with pytest.raises(tp.FormatError, match="a configuration cannot be read"):
        LlamaConfig.from_hugging_face(tmp_path / "nowhere.json")
    with pytest.raises(tp.GraphError, match="LlamaConfig has no field `layer`"):
        LlamaConfig.from_hugging_face(CONFIG, layer=2)


def test_llama_reads_rotary_positions_as_newer_configurations_write_them():
    newer = {name: value for name, value in CONFIG.items() if name != "rope_theta"}
    newer["rope_parameters"] = LLAMA3 | {"rope_theta": 500.0}
    config = LlamaConfig.from_hugging_face(newer)
    assert config.rotary_base == 500.0 and config.rotary_scaling == tp.nnx.RotaryScaling(8.0, 64)
    plain = LlamaConfig.from_hugging_face(CONFIG | {"rope_scaling": None})
    assert plain.rotary_base == 1000.0 and plain.rotary_scaling is None
