"""GPT-2 and Mixtral on the tensors of published checkpoints: equal to plain ones in value and gradient."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import save_file

import tapestry_jax as tp
from tapestry_jax.nnx.models import GPT, GPTConfig, Mixtral, MixtralConfig
from tests.simulated.sampled import computed
from tests.tapestry_jax.nnx.models import gpt_reference, llama_reference

TOKENS = np.random.default_rng(1).integers(0, 23, (4, 8)).astype(np.int32)
EXPERTS = 3
MIXTRAL = {name: value for name, value in llama_reference.CONFIG.items() if name != "torch_dtype"} | {
    "model_type": "mixtral",
    "num_local_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "sliding_window": None,
    "router_aux_loss_coef": 0.02,
    "router_jitter_noise": 0.0,
    "output_router_logits": False,
}
MOE = "block_sparse_moe"


def expert_tensors(config: Any, seed: int = 0) -> Any:
    weights = {name: w for name, w in llama_reference.tensors(config).items() if ".mlp." not in name}
    draw, embed, mlp = np.random.default_rng(seed), config["hidden_size"], config["intermediate_size"]
    for layer in range(config["num_hidden_layers"]):
        shapes = {"gate": (EXPERTS, embed)}
        for expert in range(EXPERTS):
            own = {"w1": (mlp, embed), "w2": (embed, mlp), "w3": (mlp, embed)}
            shapes |= {f"experts.{expert}.{name}": shape for name, shape in own.items()}
        for name, shape in shapes.items():
            weights[f"model.layers.{layer}.{MOE}.{name}.weight"] = np.float32(0.4 * draw.normal(size=shape))
    return weights


def mixtral_logits(weights: Any, config: Any, tokens: Any) -> Any:
    """Every expert transforms every token, and counts by its share."""

    def experts(y: Any, layer: int) -> Any:
        def of(name: str) -> Any:
            return weights[f"model.layers.{layer}.{MOE}.{name}.weight"]

        chances = jax.nn.softmax(y @ of("gate").T)
        best, numbers = jax.lax.top_k(chances, config["num_experts_per_tok"])
        shares = (jax.nn.one_hot(numbers, EXPERTS) * (best / best.sum(-1, keepdims=True))[..., None]).sum(-2)
        made = [
            (jax.nn.silu(y @ of(f"experts.{e}.w1").T) * (y @ of(f"experts.{e}.w3").T)) @ of(f"experts.{e}.w2").T
            for e in range(EXPERTS)
        ]
        return jnp.einsum("xbse,bsx->bse", jnp.stack(made), shares)

    return llama_reference.logits(weights, config, tokens, experts)


KINDS: dict[str, Any] = {
    "gpt": (GPT, GPTConfig, gpt_reference.CONFIG, gpt_reference.tensors, gpt_reference.logits),
    "mixtral": (Mixtral, MixtralConfig, MIXTRAL, expert_tensors, mixtral_logits),
}


def loaded(folder: Any, kind: str, weights: Any, **options: Any) -> Any:
    model, config_kind, config, *_ = KINDS[kind]
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: np.ascontiguousarray(w) for name, w in weights.items()}, folder / "model.safetensors")
    return model.from_safetensors(folder, config_kind.from_hugging_face(folder, **options))


@pytest.mark.parametrize(
    ("kind", "stacked"),
    [
        ("gpt", True),
        ("mixtral", True),
        pytest.param("gpt", False, marks=pytest.mark.thorough),
        pytest.param("mixtral", False, marks=pytest.mark.thorough),
    ],
)
def test_values_and_gradients_are_those_of_a_plain_one(kind: str, stacked: bool, tmp_path: Any) -> None:
    _, _, config, tensors, logits = KINDS[kind]
    weights = tensors(config)
    model = loaded(tmp_path, kind, weights, stacked=stacked)
    graphdef, state = nnx.split(model)

    def scored(made: Any) -> Any:
        return jnp.sum(made * jnp.cos(jnp.arange(made.size).reshape(made.shape)))

    def ours(state: Any) -> Any:
        made = tp.trace(nnx.merge(graphdef, state), TOKENS)(state, TOKENS)
        return made[0] if kind == "mixtral" else made

    def theirs(weights: Any) -> Any:
        return logits(weights, config, TOKENS)

    def both(run: Any) -> Any:
        def score(given: Any) -> Any:
            made = run(given)
            return scored(made), made

        return jax.grad(score, has_aux=True)

    wanted, expected = computed(both(theirs), weights)
    params, rest = nnx.split_state(state, nnx.Param, ...)

    def of(params: Any) -> Any:
        return ours(nnx.merge_state(params, rest))

    found, made = computed(both(of), params)
    np.testing.assert_allclose(made, expected, rtol=1e-3, atol=1e-4)
    # Gradients have the layouts of what they belong to: read as weights they are those of the model.
    grads = loaded(tmp_path, kind, {name: np.asarray(w) for name, w in wanted.items()}, stacked=stacked)
    read = nnx.state(grads, nnx.Param)
    for (path, a), b in zip(jax.tree.leaves_with_path(found), jax.tree.leaves(read), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3, err_msg=jax.tree_util.keystr(path))


def test_files_may_name_all_of_gpt_below_transformer_and_hold_masks_and_the_head(tmp_path: Any) -> None:
    weights = gpt_reference.tensors(gpt_reference.CONFIG)
    expected = nnx.state(loaded(tmp_path, "gpt", weights))
    whole = {f"transformer.{name}": w for name, w in weights.items()} | {"lm_head.weight": weights["wte.weight"]}
    whole["transformer.h.0.attn.bias"] = np.ones((1, 1, 12, 12), np.float32)
    found = nnx.state(loaded(tmp_path, "gpt", whole))
    jax.tree.map(np.testing.assert_array_equal, nnx.to_pure_dict(found), nnx.to_pure_dict(expected))
    whole["lm_head.weight"] = 2 * whole["lm_head.weight"]
    with pytest.raises(tp.FormatError, match=r"`lm_head.weight` is not `transformer.wte.weight`"):
        loaded(tmp_path, "gpt", whole)
    whole["transformer.lm_head.weight"] = whole.pop("lm_head.weight")
    with pytest.raises(tp.FormatError, match=r"not of the model: `transformer.lm_head.weight`"):
        loaded(tmp_path, "gpt", whole)


def test_experts_are_read_where_a_plan_wants_them(tmp_path: Any) -> None:
    weights = expert_tensors(MIXTRAL)
    model = loaded(tmp_path, "mixtral", weights)
    kind = tp.TensorType({"batch": 4, "seq": 8}, jnp.int32)
    graph = tp.trace(Mixtral.abstract(model.config), kind)
    plan = tp.plan(graph, tp.mesh(data=2, model=3), {"batch": "data", "expert": "model"})
    placed = Mixtral.from_safetensors(tmp_path, model.config, shardings=plan.in_shardings[0])
    up = placed.decoder.layer.mlp.up[...]
    assert up.addressable_shards[0].data.size * 3 == up.size
    np.testing.assert_array_equal(up, model.decoder.layer.mlp.up[...])
    assert float(placed.decoder.layer.mlp.load_balance[0]) == 0.0


def test_all_that_is_wrong_with_tensors_of_experts_is_told(tmp_path: Any) -> None:
    weights = expert_tensors(MIXTRAL)
    del weights[f"model.layers.1.{MOE}.experts.2.w3.weight"]
    weights[f"model.layers.0.{MOE}.experts.0.w2.weight"] = np.zeros((12, 16), np.float32)
    weights[f"model.layers.0.{MOE}.experts.3.w1.weight"] = np.zeros((12, 16), np.float32)
    with pytest.raises(tp.FormatError) as error:
        loaded(tmp_path, "mixtral", weights)
    assert sorted(str(error.value).splitlines()[1:-1]) == [
        f"  `model.layers.0.{MOE}.experts.0.w2.weight` has the shape (12, 16), expected (16, 12)",
        f"  missing: `model.layers.1.{MOE}.experts.2.w3.weight` (12, 16)",
        f"  not of the model: `model.layers.0.{MOE}.experts.3.w1.weight` (12, 16)",
    ]


def test_configurations_of_what_these_models_cannot_do_are_refused() -> None:
    with pytest.raises(tp.FormatError) as error:
        MixtralConfig.from_hugging_face(MIXTRAL | {"sliding_window": 4096, "model_type": "llama", "mlp_bias": True})
    assert str(error.value).splitlines() == [
        "this configuration is not that of a Mixtral",
        "  unknown: `mlp_bias`, True",
        "  `model_type` is 'llama', expected 'mixtral'",
        "  `sliding_window` is 4096, expected None",
        "  Pass the config.json of a Mixtral, or write a MixtralConfig.",
    ]
    other = {"activation_function": "gelu", "scale_attn_by_inverse_layer_idx": True, "n_layer": None}
    with pytest.raises(tp.FormatError) as error:
        GPTConfig.from_hugging_face(gpt_reference.CONFIG | other)
    assert str(error.value).splitlines() == [
        "this configuration is not that of a GPT",
        "  `activation_function` is 'gelu', expected 'gelu_new' or 'gelu_pytorch_tanh' or 'gelu_fast'",
        "  `scale_attn_by_inverse_layer_idx` is True, expected False",
        "  `n_layer` is None",
        "  Pass the config.json of a GPT, or write a GPTConfig.",
    ]


def test_what_a_configuration_leaves_out_is_as_hugging_face_has_it() -> None:
    short = {name: value for name, value in MIXTRAL.items() if name not in ("rope_theta", "rms_norm_eps")}
    config = MixtralConfig.from_hugging_face(short)
    assert (config.rotary_base, config.epsilon, config.experts, config.top_k) == (1e6, 1e-5, EXPERTS, 2)
    gpt = GPTConfig.from_hugging_face(gpt_reference.CONFIG, param_dtype=jnp.bfloat16)
    assert (gpt.hidden, gpt.max_len, gpt.epsilon, gpt.tied) == (64, 12, 1e-5, True)
