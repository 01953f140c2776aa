"""Models of Hugging Face's transformers on the weights that shardplan-rank started from: loss and gradients of the first
step, in fp64. Each model is built from the config.json that the plan has. SHARDPLAN_TABLE names a file for the table.

Usage: transformers_reference.py (FAMILY RUN_FOLDER LOSS)...
"""

import json
import os
import sys

import torch
import torch.nn.functional as F

from reference import read, sample

# transformers computes norms, rotation, routing and softmax in fp32 whatever the model's type; here in fp64.
torch.set_default_dtype(torch.float64)
torch.float32 = torch.float = torch.float64
torch.Tensor.float = torch.Tensor.double

import transformers  # noqa: E402
from transformers.models.llama.modeling_llama import LlamaDecoderLayer  # noqa: E402

# Rotated as neighbours there, as halves here.
INTERLEAVED = {"cohere", "cohere2", "deepseek_v2", "deepseek_v3", "ernie4_5", "glm", "glm4", "glm4_moe_lite", "gptj", "helium", "llama4_text"}
# Norms multiply by one more than their weight there.
FROM_ZERO = {"gemma", "gemma2", "gemma3_text", "nemotron"}
# Names of a layer's norms: before attention, behind it, before the MLP, behind it.
FOUR = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
BEHIND = (None, "post_attention_layernorm", None, "post_feedforward_layernorm")
NORMS = {
    "gemma2": FOUR,
    "gemma3_text": FOUR,
    "gemma4_text": FOUR,
    "olmo2": BEHIND,
    "apertus": ("attention_layernorm", None, "feedforward_layernorm", None),
    "flex_olmo": BEHIND,
    "afmoe": ("input_layernorm", "post_attention_layernorm", "pre_mlp_layernorm", "post_mlp_layernorm"),
    "olmo3": BEHIND,
    "exaone4": BEHIND,
    "glm4": ("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"),
    "gpt2": ("ln_1", None, "ln_2", None),
    "gptj": ("ln_1", None, None, None),
}
USUAL = ("input_layernorm", None, "post_attention_layernorm", None)


class Layer:
    """A layer's tensors by their names here, put under those of transformers."""

    def __init__(self, left, number, found, prefix, config):
        self.left, self.found, self.config = left, found, config
        self.ours, self.theirs = f"layers.{number}.", f"{prefix}{number}."
        self.kind = config.model_type

    def has(self, name):
        return self.ours + name in self.left

    def get(self, name):
        return self.left.pop(self.ours + name)

    def put(self, name, value):
        self.found[self.theirs + name] = value

    def move(self, ours, theirs, change=lambda value: value):
        for part in ("weight", "bias"):
            if self.has(f"{ours}.{part}"):
                self.put(f"{theirs}.{part}", change(self.get(f"{ours}.{part}")))

    def norm(self, ours, theirs):
        if self.kind in FROM_ZERO:
            self.left[f"{self.ours}{ours}.weight"] = self.left[f"{self.ours}{ours}.weight"] - 1
        self.move(ours, theirs)

    def values_are_keys(self):
        full = self.config.layer_types[int(self.ours.split(".")[1])] == "full_attention"
        return full and self.config.attention_k_eq_v

    def turned(self, heads):
        """Rows of heads, [heads, d, ...], from halves to neighbours where the family has those."""
        if self.kind not in INTERLEAVED:
            return heads
        width = int(heads.shape[1] * (getattr(self.config, "rope_parameters", None) or {}).get("partial_rotary_factor", 1.0))
        width = getattr(self.config, "rotary_dim", width)
        half = width // 2
        pairs = torch.stack((heads[:, :half], heads[:, half:width]), 2).flatten(1, 2)
        return torch.cat((pairs, heads[:, width:]), 1)


def grouped(layer):
    kind = layer.kind
    for part in ("weight", "bias"):
        if not layer.has(f"attention.qkv.{part}"):
            continue
        fused = layer.get(f"attention.qkv.{part}")
        if kind == "afmoe":
            half = (fused.shape[1] - 2) // 2
            layer.put("self_attn.gate_proj.weight", fused[:, half:-2].flatten(0, 2))
            fused = torch.cat((fused[:, :half], fused[:, -2:]), 1)
        own = 1 if kind == "gemma4_text" and layer.values_are_keys() else 2
        query, key, value = fused[:, :-own].flatten(0, 1), fused[:, -own], fused[:, -1]
        query, key, value = (x.flatten(0, 1) for x in (layer.turned(query), layer.turned(key), value))
        if kind == "falcon":
            layer.put(f"self_attention.query_key_value.{part}", fused.flatten(0, 2))
        elif kind == "gpt2":
            whole = torch.cat((query, key, value))
            layer.put(f"attn.c_attn.{part}", whole.T if part == "weight" else whole)
        elif kind == "gpt_neox":
            layer.put(f"attention.query_key_value.{part}", fused.flatten(0, 2))
        elif kind == "phi3":
            layer.put(f"self_attn.qkv_proj.{part}", torch.cat((query, key, value)))
        else:
            module = "attn" if kind == "gptj" else "self_attn"
            for name, rows in (("q", query), ("k", key), ("v", value))[: 1 + own]:
                layer.put(f"{module}.{name}_proj.{part}", rows)
    if layer.has("attention.sinks"):
        layer.put("self_attn.sinks", layer.get("attention.sinks").flatten())
    of = {"q": "q_norm", "k": "k_norm"}
    if kind.startswith("hunyuan"):
        of = {"q": "query_layernorm", "k": "key_layernorm"}
    elif kind in ("phi", "stablelm"):
        of = {"q": "q_layernorm", "k": "k_layernorm"}
    for ours, theirs in of.items():
        if kind == "stablelm" and layer.has(f"attention.{ours}_norm.weight"):
            for head, weight in enumerate(layer.get(f"attention.{ours}_norm.weight")):
                layer.put(f"self_attn.{theirs}.norms.{head}.weight", weight)
        if kind == "cohere":
            layer.move(f"attention.{ours}_norm", f"self_attn.{theirs}", layer.turned)
        layer.move(f"attention.{ours}_norm", f"self_attn.{theirs}", lambda w: (w - 1 if kind in FROM_ZERO else w).flatten())
    flat = lambda weight: weight.flatten(1) if weight.dim() > 1 else weight
    turned = lambda weight: flat(weight).T if weight.dim() > 1 else weight
    if kind == "gpt2":
        layer.move("attention.proj", "attn.c_proj", turned)
    elif kind in ("falcon", "gpt_neox", "phi"):
        module = {"falcon": "self_attention", "gpt_neox": "attention", "phi": "self_attn"}[kind]
        layer.move("attention.proj", f"{module}.dense", flat)
    else:
        layer.move("attention.proj", "attn.out_proj" if kind == "gptj" else "self_attn.o_proj", flat)


def latent(layer):
    nope, rank = layer.config.qk_nope_head_dim, layer.config.kv_lora_rank
    split = lambda head: torch.cat((head[:, :nope], layer.turned(head[:, nope:])), 1).flatten(0, 1)
    if layer.has("attention.q.weight"):
        layer.put("self_attn.q_proj.weight", split(layer.get("attention.q.weight")))
    else:
        layer.put("self_attn.q_a_proj.weight", layer.get("attention.q_down.weight"))
        layer.put("self_attn.q_a_layernorm.weight", layer.get("attention.q_norm.weight"))
        layer.put("self_attn.q_b_proj.weight", split(layer.get("attention.q_up.weight")))
    down = layer.get("attention.kv_down.weight")
    down = torch.cat((down[:rank], layer.turned(down[rank:].unsqueeze(0)).squeeze(0)))
    layer.put("self_attn.kv_a_proj_with_mqa.weight", down)
    layer.put("self_attn.kv_a_layernorm.weight", layer.get("attention.kv_norm.weight"))
    layer.put("self_attn.kv_b_proj.weight", layer.get("attention.kv_up.weight").flatten(0, 1))
    layer.put("self_attn.o_proj.weight", layer.get("attention.proj.weight").flatten(1))


def mlp(layer, ours, theirs):
    kind = layer.kind
    if layer.has(f"{ours}.linear.weight"):
        layer.move(f"{ours}.linear", f"{theirs}.linear_mlp")
    elif kind == "gpt2":
        layer.move(f"{ours}.fc1", f"{theirs}.c_fc", lambda w: w.T if w.dim() > 1 else w)
        layer.move(f"{ours}.fc2", f"{theirs}.c_proj", lambda w: w.T if w.dim() > 1 else w)
    elif kind in ("falcon", "gpt_neox", "gptj", "phi", "starcoder2"):
        names = {"gptj": ("fc_in", "fc_out"), "phi": ("fc1", "fc2"), "starcoder2": ("c_fc", "c_proj")}.get(kind, ("dense_h_to_4h", "dense_4h_to_h"))
        layer.move(f"{ours}.fc1", f"{theirs}.{names[0]}")
        layer.move(f"{ours}.fc2", f"{theirs}.{names[1]}")
    elif kind in ("phi3", "glm", "glm4"):
        layer.put(f"{theirs}.gate_up_proj.weight", layer.get(f"{ours}.fc1.weight").flatten(0, 1))
        layer.move(f"{ours}.fc2", f"{theirs}.down_proj")
    elif kind in ("apertus", "arcee", "jais2", "nemotron"):
        for scalar in ("alpha_p", "alpha_n"):
            if layer.has(f"{ours}.{scalar}"):
                layer.put(f"{theirs}.act_fn.{scalar}", layer.get(f"{ours}.{scalar}"))
        layer.move(f"{ours}.fc1", f"{theirs}.up_proj")
        layer.move(f"{ours}.fc2", f"{theirs}.down_proj")
    elif theirs == "shared_mlp":
        layer.put(f"{theirs}.input_linear.weight", layer.get(f"{ours}.fc1.weight").flatten(0, 1))
        layer.move(f"{ours}.fc2", f"{theirs}.output_linear")
    else:
        gate, up = layer.get(f"{ours}.fc1.weight")
        layer.put(f"{theirs}.gate_proj.weight", gate)
        layer.put(f"{theirs}.up_proj.weight", up)
        layer.move(f"{ours}.fc2", f"{theirs}.down_proj")


def experts(layer, theirs):
    kind = layer.kind
    router = "router" if kind in ("gpt_oss", "granitemoe", "granitemoeshared", "llama4_text") else "gate"
    whole = {"afmoe": f"{theirs}.router.gate", "gemma4_text": "router.proj", "hunyuan_v1_moe": f"{theirs}.gate.wg"}
    layer.move("moe.router", whole.get(kind, f"{theirs}.{router}"))
    count = sum(1 for name in layer.left if name.startswith(f"{layer.ours}moe.experts.") and name.endswith("fc1.weight"))
    every = lambda part: torch.stack([layer.get(f"moe.experts.{expert}.{part}") for expert in range(count)])
    first, second = every("fc1.weight"), every("fc2.weight")
    if kind == "gpt_oss":
        # Gates and ups in turn, outputs last.
        layer.put(f"{theirs}.experts.gate_up_proj", first.transpose(1, 2).flatten(1, 2).transpose(1, 2))
        layer.put(f"{theirs}.experts.gate_up_proj_bias", every("fc1.bias").transpose(1, 2).flatten(1, 2))
        layer.put(f"{theirs}.experts.down_proj", second.transpose(1, 2))
        layer.put(f"{theirs}.experts.down_proj_bias", every("fc2.bias"))
    elif kind == "llama4_text":
        layer.put(f"{theirs}.experts.gate_up_proj", first.flatten(1, 2).transpose(1, 2))
        layer.put(f"{theirs}.experts.down_proj", second.transpose(1, 2))
    else:
        inside = "" if kind == "gemma4_text" else f"{theirs}."
        layer.put(f"{inside}experts.gate_up_proj", first.flatten(1, 2))
        layer.put(f"{inside}experts.down_proj", second)
    if kind == "gemma4_text":
        for ours, theirs_own in (("router.scale", "router.scale"), ("router.expert_scale", "router.per_expert_scale")):
            layer.put(theirs_own, layer.get(f"moe.{ours}"))
        norms = {"experts_norm": "pre_feedforward_layernorm_2", "experts_post_norm": "post_feedforward_layernorm_2",
                 "shared_post_norm": "post_feedforward_layernorm_1"}
        for ours, theirs_own in norms.items():
            layer.move(f"moe.{ours}", theirs_own)
        mlp(layer, "moe.shared", theirs)
    if layer.has("moe.shared.fc1.weight"):
        name = "shared_expert" if kind in ("qwen2_moe", "llama4_text") else "shared_experts"
        name = "shared_mlp" if kind == "hunyuan_v1_moe" else name
        mlp(layer, "moe.shared", "shared_mlp" if kind == "granitemoeshared" else f"{theirs}.{name}")
    layer.move("moe.shared.gate", f"{theirs}.shared_expert_gate")


def named(config, tensors):
    """The executor's tensors by the names and in the shapes of transformers."""
    left, found, kind = dict(tensors), {}, config.model_type
    base = {"falcon": "transformer.", "gpt2": "transformer.", "gptj": "transformer.", "gpt_neox": "gpt_neox."}.get(kind, "model.")
    embedding = {"falcon": "word_embeddings", "gpt2": "wte", "gptj": "wte", "gpt_neox": "embed_in"}.get(kind, "embed_tokens")
    final = {"falcon": "ln_f", "gpt2": "ln_f", "gptj": "ln_f", "phi": "final_layernorm", "gpt_neox": "final_layer_norm"}.get(kind, "norm")
    found[f"{base}{embedding}.weight"] = left.pop("embedding.weight")[: config.vocab_size]
    if kind == "gpt2":
        found["transformer.wpe.weight"] = left.pop("embedding.positions.weight")
    if "head.weight" in left:
        found["lm_head.weight"] = left.pop("head.weight")[: config.vocab_size]
    if "head.bias" in left:
        found["lm_head.bias"] = left.pop("head.bias")[: config.vocab_size]
    for part in ("weight", "bias"):
        if f"final_norm.{part}" in left:
            value = left.pop(f"final_norm.{part}")
            found[f"{base}{final}.{part}"] = value - 1 if kind in FROM_ZERO and part == "weight" else value
    for number in range(config.num_hidden_layers):
        layer = Layer(left, number, found, f"{base}{'h' if kind in ('falcon', 'gpt2', 'gptj') else 'layers'}.", config)
        ours = ("attention.norm", "attention.post_norm", "mlp.norm", "mlp.post_norm")
        usual = ("ln_attn", None, "ln_mlp", None) if kind == "falcon" and layer.has("mlp.norm.weight") else USUAL
        for name, theirs in zip(ours, NORMS.get(kind, usual)):
            if theirs and layer.has(f"{name}.weight"):
                layer.norm(name, theirs)
        if layer.has("attention.linear.weight"):
            layer.move("attention.linear", "self_attn.linear_attn")
        elif layer.has("attention.proj.weight"):
            (latent if layer.has("attention.kv_up.weight") else grouped)(layer)
        theirs = {"granitemoe": "block_sparse_moe", "granitemoeshared": "block_sparse_moe", "llama4_text": "feed_forward"}.get(kind, "mlp")
        if layer.has("moe.router.weight"):
            experts(layer, theirs)
        elif layer.has("mlp.fc2.weight") or layer.has("mlp.linear.weight"):
            mlp(layer, "mlp", theirs)
    assert not left, f"not in transformers: {sorted(left)}"
    return found


class Matrix(torch.nn.Module):
    """One matrix in the place of attention (`linear_attn`) or of an MLP (`linear_mlp`)."""

    def __init__(self, name, width):
        super().__init__()
        self.add_module(name, torch.nn.Linear(width, width, bias=False))
        self.name = name

    def forward(self, hidden_states, **_):
        output = getattr(self, self.name)(hidden_states)
        return (output, None) if self.name == "linear_attn" else output


class SearchedLayer(LlamaDecoderLayer):
    """A layer of Llama whose attention and MLP are as an entry of `block_configs` says: of a size of its own, one matrix,
    or missing with its norm."""

    def __init__(self, config, number, block):
        attention, ffn = block["attention"], block["ffn"]
        own = type(config)(**config.to_dict())
        own._attn_implementation = "eager"
        own.num_key_value_heads = config.num_attention_heads // (attention.get("n_heads_in_group") or 1)
        width = int(2 * ffn.get("ffn_mult", 1) * config.hidden_size / 3)
        own.intermediate_size = ffn.get("intermediate_size") or -(-width // 256) * 256
        super().__init__(own, number)
        if attention.get("replace_with_linear"):
            self.self_attn = Matrix("linear_attn", config.hidden_size)
        if attention.get("no_op"):
            self.self_attn = self.input_layernorm = None
        if ffn.get("replace_with_linear"):
            self.mlp = Matrix("linear_mlp", config.hidden_size)
        if ffn.get("no_op"):
            self.mlp = self.post_attention_layernorm = None

    def forward(self, hidden_states, **beside):
        if self.self_attn is not None:
            hidden_states = hidden_states + self.self_attn(self.input_layernorm(hidden_states), **beside)[0]
        if self.mlp is not None:
            hidden_states = hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))
        return hidden_states


def searched(settings):
    """Llama-Nemotron, which transformers has no class of: its Llama with layers of the parts of transformers' Llama."""
    blocks = settings.pop("block_configs")
    config = transformers.AutoConfig.for_model("llama", **settings)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    layers = [SearchedLayer(config, number, block) for number, block in enumerate(blocks)]
    model.model.layers = torch.nn.ModuleList(layers)
    return config, model.double().eval()


def build(settings):
    settings = dict(settings)
    kind = settings.pop("model_type")
    if kind == "nemotron-nas":
        return searched(settings)
    kind = "deepseek_v3" if kind == "kimi_k2" else kind
    # Ids of words that a class has are beyond so small a vocabulary.
    settings |= {name: None for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    if kind == "cwm":
        settings["bos_token_id"] = 0  # It takes a number alone.
    config = transformers.AutoConfig.for_model(kind, **settings)
    config._attn_implementation = config._experts_implementation = "eager"
    return config, transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").double().eval()


def router_losses(model, coefficient):
    """The loss on the size of each router's logits, which forward fills in: transformers has none of its own."""
    losses = []
    def note(router, inputs):
        logits = F.linear(inputs[0].reshape(-1, router.weight.shape[1]), router.weight)
        losses.append(coefficient * logits.logsumexp(-1).square().mean())
    if coefficient:
        routers = [module for name, module in model.named_modules() if name.endswith("mlp.gate")]
        assert routers
        for router in routers:
            router.register_forward_pre_hook(note)
    return losses


def check(family, folder, said):
    plan = json.load(open(f"{folder}/plan.json"))
    training = plan["training"]
    config, theirs = build(plan["model"]["hf_config"])
    weights = named(config, read(f"{folder}/dump/weights-00000.rank-00000"))
    parameters = {name: value for name, value in theirs.named_parameters() if value.requires_grad}
    assert parameters.keys() == weights.keys(), parameters.keys() ^ weights.keys()
    with torch.no_grad():
        for name, parameter in parameters.items():
            assert parameter.shape == weights[name].shape, (name, parameter.shape, weights[name].shape)
            parameter.copy_(weights[name])
    words, length = min(config.vocab_size, 256), training["seq_len"] + 1
    seed = plan["run"].get("seed", 1234)
    batch = [sample(index, seed, words, length) for index in range(training["global_batch_size"])]
    tokens = torch.tensor(batch)
    beside = router_losses(theirs, getattr(config, "router_z_loss_coef", 0.0))
    logits = theirs(tokens[:, :-1]).logits
    assert logits.dtype == torch.float64
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    sum(beside, loss).backward()
    off = abs(loss.item() - said) / said
    gradients = named(config, {k: v + (1 if k.endswith("norm.weight") and config.model_type in FROM_ZERO else 0)
                               for k, v in read(f"{folder}/dump/gradients-00001.rank-00000").items()})
    total = torch.cat([gradient.flatten() for gradient in gradients.values()]).norm()
    worst = max(
        ((gradients[name] - parameter.grad).norm() / max(parameter.grad.norm(), 1e-6 * total), name)
        for name, parameter in parameters.items()
    )
    row = f"| {family['name']} | {config.num_hidden_layers} | {family['shows']} | {off:.1e} | {worst[0]:.1e} |"
    if os.environ.get("SHARDPLAN_TABLE"):
        open(os.environ["SHARDPLAN_TABLE"], "a").write(f"{row}\n")
    equal = off <= 1e-10 and worst[0] <= 1e-10
    print(row, f"loss and gradients of {len(parameters)} parameters are equal" if equal else f"DIFFER at {worst[1]}")
    return equal


def attempt(family, folder, said):
    try:
        return check(json.loads(family), folder, float(said))
    except Exception as error:  # noqa: BLE001
        print(f"| {json.loads(family)['name']} | FAILED: {type(error).__name__}: {str(error)[:600]}")
        return False


if __name__ == "__main__":
    results = [attempt(*case) for case in zip(sys.argv[1::3], sys.argv[2::3], sys.argv[3::3])]
    sys.exit(0 if all(results) else 1)
