"""What transformers writes of small models whose tensors are numbered, for planner's map of weights: of every tensor of the
file its shape and a checksum of the numbers in it.

Usage, from the repository's root: weight_map.py configs | cargo run -p planner --example parameters > MODELS;
weight_map.py record MODELS > planner/tests/data/transformers_files.json. Parameters are numbered in the order of
MODELS, row by row, from 1; how they become transformers' tensors is said by the worker's reference, which shares no code with
the map.
"""

import json
import os
import sys
import tempfile
import zlib

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
REFERENCE = os.path.join(ROOT, "native-worker/rank/tests/executor")
# Sizes as small as the shapes allow, each in the place of the one that a config.json says.
SIZES = {
    "first_k_dense_replace": 1, "global_head_dim": 16, "head_dim": 8, "hidden_size": 32, "intermediate_size": 20,
    "intermediate_size_mlp": 20, "kv_lora_rank": 6, "moe_intermediate_size": 10, "n_embd": 32, "n_head": 4,
    "n_positions": 12, "num_dense_layers": 1, "num_attention_heads": 4, "num_global_key_value_heads": 1,
    "q_lora_rank": 5, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "rotary_dim": 4,
    "shared_expert_intermediate_size": 14, "shared_intermediate_size": 14, "v_head_dim": 3, "vocab_size": 16,
    "moe_topk": 2, "num_experts_per_tok": 2, "top_k_experts": 2,
}
EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts")


def small(family, presets):
    config = dict(presets[family["preset"]] if "preset" in family else family["config"])
    config |= family.get("more", {})
    if config["model_type"] == "nemotron-nas":
        # Its layers say their groups of heads and widths themselves.
        return config | {"num_hidden_layers": family["layers"], "hidden_size": 64, "num_attention_heads": 8, "vocab_size": 16}
    shares = config.get("num_attention_heads") != config.get("num_key_value_heads")
    for name, size in SIZES.items():
        if config.get(name) is not None:
            config[name] = size
    for name in EXPERTS:
        if config.get(name):
            config[name] = 4
    if config.get("num_key_value_heads"):
        config["num_key_value_heads"] = 2 if shares else 4
    if config.get("num_kv_heads"):
        config["num_kv_heads"] = 2
    if (config.get("n_group") or 1) > 1:
        config |= {"n_group": 2, "topk_group": 1}
    if config["model_type"] == "llama4_text":
        config["num_experts_per_tok"] = 1
    layers = "n_layer" if "n_layer" in config else "num_hidden_layers"
    config = {name: value[: family["layers"]] if isinstance(value, list) and len(value) == config[layers] else value
              for name, value in config.items() if value is not None}
    config[layers] = family["layers"]
    return config


def configs():
    catalogue = json.load(open(f"{ROOT}/planner/src/model/catalogue.json", encoding="utf-8"))
    presets = {preset["id"]: preset.get("hf_config") for preset in catalogue}
    for family in json.load(open(f"{REFERENCE}/families.json", encoding="utf-8")):
        yield family["name"], small(family, presets)


def written(config, parameters):
    """Names, shapes and checksums of what transformers writes where these parameters are numbered."""
    import torch
    from safetensors.torch import load_file
    from transformers_reference import build, named

    made, model = build(config)
    left, start = {}, 1
    for name, shape in parameters:
        count = torch.Size(shape).numel()
        left[name] = torch.arange(start, start + count, dtype=torch.float64).view(shape)
        start += count
    state = dict(model.named_parameters())
    with torch.no_grad():
        for buffer in model.buffers():
            buffer.zero_()
        for name, value in named(made, left).items():
            assert state[name].shape == value.shape, (name, state.pop(name).shape, value.shape)
            state.pop(name).copy_(value)
    assert not [name for name, value in state.items() if value.requires_grad], state.keys()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tensors = load_file(f"{folder}/model.safetensors")
    sums = {}
    for name, tensor in sorted(tensors.items()):
        numbers = tensor.to(torch.int64).contiguous().numpy().astype("<i8").tobytes()
        sums[name] = [list(tensor.shape), zlib.crc32(numbers)]
    return sums


def record(models):
    sys.path.insert(0, REFERENCE)
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    import transformers

    transformers.logging.set_verbosity_error()
    rows = []
    for name, config, parameters in json.load(open(models, encoding="utf-8")):
        rows.append({"name": name, "config": config, "tensors": written(config, parameters)})
    lines = [json.dumps(row, separators=(",", ":")) for row in rows]
    print(f'{{"source": "transformers {transformers.__version__}", "models": [')
    print(",\n".join(lines))
    print("]}")


if __name__ == "__main__":
    if sys.argv[1] == "configs":
        print(json.dumps(list(configs()), indent=1))
    else:
        record(sys.argv[2])
