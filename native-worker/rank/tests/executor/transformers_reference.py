"""Models of Hugging Face's transformers on the weights that shardplan-rank started from: loss and gradients of the first
step, in fp64.

Usage: transformers_reference.py (FAMILY RUN_FOLDER LOSS)...
"""

import json
import sys

import torch
import torch.nn.functional as F
import transformers

from reference import close, read, sample

# transformers computes norms, rotation, routing and softmax in fp32 whatever the model's type; here in fp64.
torch.set_default_dtype(torch.float64)
torch.float32 = torch.float = torch.float64
torch.Tensor.float = torch.Tensor.double


def interleaved(rows):
    """From halves that are rotated against each other to neighbours that are: the first dim."""
    half = rows.shape[0] // 2
    return torch.stack((rows[:half], rows[half:]), 1).flatten(0, 1)


def grouped(a, get, put):
    heads, kv, d = a["heads"], a["kv_heads"], a["head_dim"]
    weight = get("attention.qkv.weight")
    hidden = weight.shape[-1]
    put("self_attn.q_proj.weight", weight[:, : heads // kv].reshape(heads * d, hidden))
    put("self_attn.k_proj.weight", weight[:, heads // kv].reshape(kv * d, hidden))
    put("self_attn.v_proj.weight", weight[:, heads // kv + 1].reshape(kv * d, hidden))
    if a.get("qk_norm") == "per_head":
        put("self_attn.q_norm.weight", get("attention.q_norm.weight"))
        put("self_attn.k_norm.weight", get("attention.k_norm.weight"))
    put("self_attn.o_proj.weight", get("attention.proj.weight").flatten(1))


def latent(a, get, put):
    nope, latent = a["qk_nope_dim"], a["kv_lora_rank"]
    put("self_attn.q_a_proj.weight", get("attention.q_down.weight"))
    put("self_attn.q_a_layernorm.weight", get("attention.q_norm.weight"))
    up = [torch.cat((head[:nope], interleaved(head[nope:]))) for head in get("attention.q_up.weight")]
    put("self_attn.q_b_proj.weight", torch.cat(up))
    down = get("attention.kv_down.weight")
    put("self_attn.kv_a_proj_with_mqa.weight", torch.cat((down[:latent], interleaved(down[latent:]))))
    put("self_attn.kv_a_layernorm.weight", get("attention.kv_norm.weight"))
    put("self_attn.kv_b_proj.weight", get("attention.kv_up.weight").flatten(0, 1))
    put("self_attn.o_proj.weight", get("attention.proj.weight").flatten(1))


def mlp(get, put, ours, theirs):
    gate, up = get(f"{ours}.fc1.weight")
    put(f"{theirs}.gate_proj.weight", gate)
    put(f"{theirs}.up_proj.weight", up)
    put(f"{theirs}.down_proj.weight", get(f"{ours}.fc2.weight"))


def experts(moe, get, put):
    put("mlp.gate.weight", get("moe.router.weight"))
    every = range(moe["experts"])
    first = [get(f"moe.experts.{expert}.fc1.weight").flatten(0, 1) for expert in every]
    put("mlp.experts.gate_up_proj", torch.stack(first))
    put("mlp.experts.down_proj", torch.stack([get(f"moe.experts.{expert}.fc2.weight") for expert in every]))
    if moe.get("shared_ffn_hidden_size"):
        mlp(get, put, "moe.shared", "mlp.shared_experts")


def named(model, tensors):
    """The executor's tensors by the names and in the shapes of transformers."""
    left, found = dict(tensors), {}
    words = model["vocab_size"]
    found["model.embed_tokens.weight"] = left.pop("embedding.weight")[:words]
    if not model.get("tied_embeddings"):
        found["lm_head.weight"] = left.pop("head.weight")[:words]
    found["model.norm.weight"] = left.pop("final_norm.weight")
    a = model["attention"]
    for layer in range(model["num_layers"]):
        get = lambda name, layer=layer: left.pop(f"layers.{layer}.{name}")
        put = lambda name, value, layer=layer: found.__setitem__(f"model.layers.{layer}.{name}", value)
        put("input_layernorm.weight", get("attention.norm.weight"))
        put("post_attention_layernorm.weight", get("mlp.norm.weight"))
        (grouped if a["kind"] == "gqa" else latent)(a, get, put)
        if f"layers.{layer}.moe.router.weight" in left:
            experts(model["moe"], get, put)
        else:
            mlp(get, put, "mlp", "mlp")
    assert not left, f"not in transformers: {sorted(left)}"
    return found


def build(family, model):
    a, moe = model["attention"], model.get("moe") or {}
    routing = moe.get("routing", {})
    settings = {
        "vocab_size": model["vocab_size"],
        "hidden_size": model["hidden_size"],
        "intermediate_size": model["ffn_hidden_size"],
        "num_hidden_layers": model["num_layers"],
        "num_attention_heads": a["heads"],
        "num_key_value_heads": a.get("kv_heads", a["heads"]),
        "rms_norm_eps": model.get("norm_eps", 1e-5),
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        "tie_word_embeddings": bool(model.get("tied_embeddings")),
        "moe_intermediate_size": moe.get("ffn_hidden_size"),
        "num_experts_per_tok": moe.get("top_k"),
        "norm_topk_prob": routing.get("normalize", True),
        "attn_implementation": "eager",
        "experts_implementation": "eager",
    }
    if a["kind"] == "gqa":
        settings |= {"head_dim": a["head_dim"], "num_experts": moe.get("experts")}
    else:
        settings |= {
            "q_lora_rank": a["q_lora_rank"],
            "kv_lora_rank": a["kv_lora_rank"],
            "qk_nope_head_dim": a["qk_nope_dim"],
            "qk_rope_head_dim": a["qk_rope_dim"],
            "v_head_dim": a["v_dim"],
            "n_routed_experts": moe["experts"],
            "n_shared_experts": moe["shared_ffn_hidden_size"] // moe["ffn_hidden_size"],
            "n_group": routing["groups"],
            "topk_group": routing["group_top_k"],
            "routed_scaling_factor": routing["scale"],
            "first_k_dense_replace": 1,
        }
    settings = {name: value for name, value in settings.items() if value is not None}
    config = getattr(transformers, f"{family}Config")(**settings)
    return getattr(transformers, f"{family}ForCausalLM")(config).double()


def check(family, folder, said):
    plan = json.load(open(f"{folder}/plan.json"))
    model, training = plan["model"]["architecture"], plan["training"]
    theirs = build(family, model)
    weights = named(model, read(f"{folder}/dump/weights-00000.rank-00000"))
    parameters = dict(theirs.named_parameters())
    assert parameters.keys() == weights.keys(), parameters.keys() ^ weights.keys()
    with torch.no_grad():
        for name, parameter in parameters.items():
            assert parameter.shape == weights[name].shape, (name, parameter.shape, weights[name].shape)
            parameter.copy_(weights[name])
    words, length = min(model["vocab_size"], 256), training["seq_len"] + 1
    seed = plan["run"].get("seed", 1234)
    batch = [sample(index, seed, words, length) for index in range(training["global_batch_size"])]
    tokens = torch.tensor(batch)
    logits = theirs(tokens[:, :-1]).logits
    assert logits.dtype == torch.float64
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    assert abs(loss.item() - said) <= 1e-10 * said, (loss.item(), said)
    gradients = named(model, read(f"{folder}/dump/gradients-00001.rank-00000"))
    total = torch.cat([gradient.flatten() for gradient in gradients.values()]).norm()
    for name, parameter in parameters.items():
        close(f"gradient of {name}", gradients[name], parameter.grad, 1e-6 * total)
    print(f"loss and gradients of {len(parameters)} parameters of {family} are equal")


for family, folder, said in zip(sys.argv[1::3], sys.argv[2::3], sys.argv[3::3]):
    check(family, folder, float(said))
