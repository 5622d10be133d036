"""Files of weights: what they lack, have too much or otherwise is told at once; what cannot be read, by file."""

from __future__ import annotations

import dataclasses
import json
import os

import numpy as np
import pytest
from safetensors.numpy import save_file

import tapestry_jax as tp
from tapestry_jax.nnx.models import Llama, LlamaConfig
from tapestry_jax.nnx.models.published.weights import FLOATS
from tests.tapestry_jax.nnx.models import llama_reference as reference

CONFIG = LlamaConfig.from_hugging_face(reference.CONFIG)
HEAD = "these weights are not those of the model"


@pytest.fixture
def weights():
    return reference.tensors(reference.CONFIG)


def refusal(paths):
    with pytest.raises(tp.FormatError) as error:
        Llama.from_safetensors(paths, CONFIG)
    return str(error.value).splitlines()


def test_all_wrong_tensors_are_told_at_once(tmp_path, weights):
    del weights["model.layers.1.self_attn.k_proj.weight"], weights["model.norm.weight"]
    weights["model.layers.0.mlp.up_proj.weight"] = np.zeros((16, 12), np.float32)
    weights["model.embed_tokens.weight"] = np.zeros((23, 16), np.int8)
    weights["model.layers.2.mlp.up_proj.weight"] = np.zeros((12, 16), np.float32)
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(3, np.float32)  # follows from the sizes
    save_file(weights, tmp_path / "model.safetensors")
    told = refusal(tmp_path / "model.safetensors")
    assert told[0] == HEAD and sorted(told[1:-1]) == [
        f"  `model.embed_tokens.weight` is of I8, expected one of {', '.join(FLOATS)}",
        "  `model.layers.0.mlp.up_proj.weight` has the shape (16, 12), expected (12, 16)",
        "  missing: `model.layers.1.self_attn.k_proj.weight` (12, 16)",
        "  missing: `model.norm.weight` (16,)",
        "  not of the model: `model.layers.2.mlp.up_proj.weight` (12, 16)",
    ]
    assert told[-1] == "  Pass the files of one checkpoint, and the configuration that it was written with."


def test_a_tensor_that_stands_twice_is_refused(tmp_path, weights):
    save_file(weights, tmp_path / "a.safetensors")
    save_file({"model.norm.weight": np.ones(16, np.float32)}, tmp_path / "b.safetensors")
    assert refusal(tmp_path)[1:2] == ["  `model.norm.weight` stands in a.safetensors and in b.safetensors"]


def test_a_head_that_is_tied_may_stand_there_if_it_is_the_same(tmp_path, weights):
    tied = LlamaConfig.from_hugging_face(reference.CONFIG | {"tie_word_embeddings": True})
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(tp.FormatError, match=r"`lm_head.weight` is not `model.embed_tokens.weight`"):
        Llama.from_safetensors(tmp_path, tied)
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    save_file(weights, tmp_path / "model.safetensors")
    assert Llama.from_safetensors(tmp_path, tied).head is None


@pytest.mark.parametrize("stacked", [True, False])
def test_more_layers_than_tensors_are_refused_before_they_are_named(tmp_path, weights, stacked):
    save_file(weights, tmp_path / "model.safetensors")
    asked = dataclasses.replace(CONFIG, layers=10**9, stacked=stacked)
    with pytest.raises(tp.FormatError, match=rf"{HEAD}\n  1000000000 layers, and {len(weights)} tensors in the files"):
        Llama.from_safetensors(tmp_path, asked)


def test_a_long_list_is_cut(tmp_path):
    save_file({f"w{number}": np.zeros(1, np.float32) for number in range(60)}, tmp_path / "model.safetensors")
    told = refusal([tmp_path / "model.safetensors"])
    assert len(told) == 43 and told[-2] == "  and 41 more"


def test_sizes_are_those_of_the_configuration_beside_the_weights(tmp_path, weights):
    save_file(weights, tmp_path / "model.safetensors")
    for paths in (tmp_path, tmp_path / "model.safetensors"):
        with pytest.raises(tp.FormatError, match=r"a configuration cannot be read\n.*config\.json"):
            Llama.from_safetensors(paths)
    with pytest.raises(tp.FormatError, match=r"^1 of 1 files of weights cannot be read\n.*none"):
        Llama.from_safetensors(tmp_path / "none")
    (tmp_path / "config.json").write_text(json.dumps(reference.CONFIG))
    # What the files hold decides; which of them holds what, as the index says, is not asked.
    (tmp_path / "model.safetensors.index.json").write_text("{")
    for paths in (tmp_path, str(tmp_path / "model.safetensors"), [tmp_path / "model.safetensors"]):
        model = Llama.from_safetensors(paths)
        assert model.config == CONFIG
        np.testing.assert_array_equal(model.norm.scale[...], weights["model.norm.weight"])


@pytest.mark.parametrize("damage", ["empty", "truncated", "long header", "shapes"])
def test_files_that_are_damaged_are_told(tmp_path, weights, damage):
    good, bad = tmp_path / "good.safetensors", tmp_path / "bad.safetensors"
    save_file(weights, good)
    content = good.read_bytes()
    bad.write_bytes(
        {
            "empty": b"",
            "truncated": content[:-100],
            "long header": (2**40).to_bytes(8, "little") + content[8:],
            "shapes": content.replace(b"[23,16]", b"[99,16]"),
        }[damage]
    )
    told = refusal([bad, tmp_path / "none.safetensors", good])
    assert told[0] == "2 of 3 files of weights cannot be read"
    assert told[1].startswith(f"  {bad}: SafetensorError") and told[2].startswith(f"  {tmp_path}/none.safetensors: ")


def test_what_is_no_path_is_refused(tmp_path, weights):
    for paths in (3, [], [None]):
        with pytest.raises(tp.GraphError, match="paths= of from_safetensors"):
            Llama.from_safetensors(paths, CONFIG)
    with pytest.raises(tp.FormatError, match=r"holds no file \*\.safetensors"):
        Llama.from_safetensors(tmp_path, CONFIG)
    save_file(weights, tmp_path / "model.safetensors")
    for shardings in (3, {"head": None}, "data"):
        with pytest.raises(tp.GraphError, match="shardings= of from_safetensors"):
            Llama.from_safetensors(tmp_path, CONFIG, shardings=shardings)
    with pytest.raises(tp.GraphError, match="config= of Llama is not what it should be"):
        Llama.from_safetensors(tmp_path, {"layers": 2})


def test_the_package_that_reads_them_is_named_where_it_is_not_there(tmp_path, weights, monkeypatch):
    save_file(weights, tmp_path / "model.safetensors")
    monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
    assert refusal(tmp_path)[1] == "  Install it: pip install 'tapestry-jax[weights]'."


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path, weights):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(tp.FormatError, match=r"a configuration cannot be read\n.*config\.json: OSError: it is no file"):
        LlamaConfig.from_hugging_face(tmp_path)
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(tp.FormatError, match=r"model\.safetensors` is no file"):
        Llama.from_safetensors(tmp_path, CONFIG)
