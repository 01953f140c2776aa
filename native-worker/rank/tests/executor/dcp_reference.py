"""Holds torch's view of exported checkpoints against the Hugging Face export and the files of the ranks.

Arguments: KIND FOLDER, and more of these. FOLDER has `dcp` (exported), `hf` (exported too; not of KIND `own`) and `kept` (the
checkpoint itself).
"""

import json
import os
import sys
import tempfile

import torch
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict, get_optimizer_state_dict, set_model_state_dict, set_optimizer_state_dict)


def held(folder):
    """Whole parameters of a checkpoint, by kind and name."""
    found = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".safetensors"):
            continue
        with safe_open(f"{folder}/{name}", "pt") as file:
            for piece in json.loads(file.metadata()["shardplan.pieces"]):
                values = file.get_tensor(piece["tensor"])
                box, shape = piece["piece"], piece["shape"]
                # Vocabulary padding lies behind the last row.
                grown = [max(shape[0], box["offset"][0] + box["extent"][0])] + shape[1:]
                key = (piece["kind"], piece["parameter"])
                whole = found.get(key, torch.full(shape, float("nan"), dtype=values.dtype))
                index = torch.arange(torch.tensor(grown).prod().item()).view(grown)
                for dim, (first, count) in enumerate(zip(box["offset"], box["extent"])):
                    index = index.narrow(dim, first, count)
                index = index.reshape(-1)[box["start"]:box["start"] + box["elements"]]
                whole.view(-1)[index] = values
                found[key] = whole
    assert not any(value.isnan().any() for value in found.values())
    return found


def same(one, other):
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)


def check_layout(kept, kind, of):
    """Tensors of a Llama, as they are in the ranks' parameters."""
    def rows(value):
        return value.reshape(-1, value.shape[-1])

    qkv = kept[(kind, "layers.1.attention.qkv.weight")]
    assert same(of("model.layers.1.self_attn.q_proj.weight"), rows(qkv[:, :-2]))
    assert same(of("model.layers.1.self_attn.k_proj.weight"), rows(qkv[:, -2]))
    assert same(of("model.layers.1.self_attn.v_proj.weight"), rows(qkv[:, -1]))
    fc1 = kept[(kind, "layers.0.mlp.fc1.weight")]
    assert same(of("model.layers.0.mlp.gate_proj.weight"), fc1[0])
    assert same(of("model.layers.0.mlp.up_proj.weight"), fc1[1])
    assert same(of("model.embed_tokens.weight"), kept[(kind, "embedding.weight")])
    assert same(of("model.norm.weight"), kept[(kind, "final_norm.weight")])


def check_load(folder, state):
    """The way that docs/commands.md shows: into a model of transformers and torch's AdamW."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(f"{folder}/hf")
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    wanted = {"model": get_model_state_dict(model),
              "optim": {"state": get_optimizer_state_dict(model, optimizer)["state"]}}
    dcp.load(wanted, checkpoint_id=f"{folder}/dcp", no_dist=True)
    set_model_state_dict(model, wanted["model"])
    groups = get_optimizer_state_dict(model, optimizer)["param_groups"]
    set_optimizer_state_dict(model, optimizer, {"state": wanted["optim"]["state"], "param_groups": groups})
    for name, value in model.named_parameters():
        assert same(value.detach(), state["model"][name]), name
        for kind in ("exp_avg", "exp_avg_sq"):
            assert same(optimizer.state[value][kind], state["optim"]["state"][name][kind]), (kind, name)
        assert optimizer.state[value]["step"].item() == 3, name


def check(kind, folder):
    with tempfile.TemporaryDirectory() as place:
        dcp_to_torch_save(f"{folder}/dcp", f"{place}/all.pt")
        state = torch.load(f"{place}/all.pt", weights_only=True)
    assert (state["step"].item(), state["samples"].item()) == (3, 12)
    kept = held(f"{folder}/kept")
    kinds = {kind for kind, _ in kept} - {"weight", "expert_bias"}
    moments = state["optim"]["state"]
    metadata = dcp.FileSystemReader(f"{folder}/dcp").read_metadata()
    assert max(len(item.chunks) for item in metadata.state_dict_metadata.values()) > 4

    # Each by itself, and into a part of a tensor, as a rank of a sharded training reads.
    flat = {name: torch.zeros(item.size, dtype=item.properties.dtype) for name, item in metadata.state_dict_metadata.items()}
    dcp.load(flat, checkpoint_id=f"{folder}/dcp", no_dist=True)
    for name, value in flat.items():
        of = state
        for key in metadata.planner_data[name]:
            of = of[key]
        assert same(of, value), name

    if kind == "own":
        for (what, name), value in kept.items():
            assert same(state["model"][name] if what == "weight" else moments[name][what], value), (what, name)
        for name, of in moments.items():
            assert ("step" in of) == ("exp_avg" in of) and of.get("step", torch.tensor(3.0)).item() == 3, name
        assert len(kept) == len(state["model"]) + sum(len(of) - ("step" in of) for of in moments.values())
        return

    held_by_transformers = {}
    for name in os.listdir(f"{folder}/hf"):
        if name.endswith(".safetensors"):
            with safe_open(f"{folder}/hf/{name}", "pt") as file:
                held_by_transformers |= {name: file.get_tensor(name) for name in file.keys()}
    extra = set(state["model"]) - set(held_by_transformers)
    assert extra == ({"lm_head.weight"} if kind == "qwen3" else set()), extra
    for name, value in held_by_transformers.items():
        found = state["model"][name]
        if not name.endswith("e_score_correction_bias"):
            assert found.dtype == torch.float32, name
        assert same(found.float(), value), name
    for what in kinds:
        # Whatever tensor it is in, each element is there once.
        ours = torch.cat([value.reshape(-1) for (kind, _), value in kept.items() if kind == what])
        theirs = torch.cat([of[what].reshape(-1) for of in moments.values()])
        assert torch.equal(ours.sort()[0], theirs.sort()[0]), what
        assert all(of[what].shape == state["model"][name].shape for name, of in moments.items())
        assert ours.abs().max() > 0
    if kind == "llama":
        check_layout(kept, "weight", lambda name: state["model"][name])
        for what in kinds:
            check_layout(kept, what, lambda name: moments[name][what])
    if kind in ("llama", "qwen3"):
        check_load(folder, state)


arguments = sys.argv[1:]
for kind, folder in zip(arguments[::2], arguments[1::2]):
    check(kind, folder)
    print(f"{kind}: are equal")
