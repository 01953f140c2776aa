"""Small models of transformers for the worker to begin with, and what transformers says of what it gives back.

make KIND FOLDER: a model whose numbers are from a seed, saved. loss FOLDER STEP: the mean loss of the worker's sequences of a
step, in fp64. same FOLDER: what transformers saves of a folder that it has read has the same tensors, and generates the same
tokens. equal ONE OTHER: both folders have the same tensors, to the bit.
"""

import json
import os
import sys
import tempfile

import torch
import torch.distributed.checkpoint
import torch.nn.functional as F
import transformers

from reference import sample

transformers.logging.set_verbosity_error()
SEED, BATCH, LENGTH = 1234, 4, 17
COMMON = dict(vocab_size=256, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
              intermediate_size=48, max_position_embeddings=64)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, norm_topk_prob=True, router_aux_loss_coef=0.0)
MODELS = {
    "llama": (transformers.LlamaConfig, {}),
    "qwen3": (transformers.Qwen3Config, dict(head_dim=8, tie_word_embeddings=True)),
    "qwen3_moe": (transformers.Qwen3MoeConfig, dict(head_dim=8, **EXPERTS)),
    "deepseek_v3": (transformers.DeepseekV3Config, dict(
        num_key_value_heads=4, n_routed_experts=8, num_experts_per_tok=2, n_group=4, topk_group=2, moe_intermediate_size=16,
        first_k_dense_replace=1, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6)),
    "gpt_oss": (transformers.GptOssConfig, dict(
        head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=8, router_aux_loss_coef=0.0,
        layer_types=["sliding_attention", "full_attention"])),
}


def make(kind, folder):
    torch.manual_seed(SEED)
    of, more = MODELS[kind]
    model = transformers.AutoModelForCausalLM.from_config(of(**(COMMON | more)))
    with torch.no_grad():
        for name, value in list(model.named_parameters()) + list(model.named_buffers()):
            if name.endswith(("norm.weight", "layernorm.weight")):
                value.copy_(1 + 0.1 * torch.randn_like(value))
            elif "bias" in name or "sinks" in name:
                value.copy_(0.02 * torch.randn_like(value))
            elif value.is_floating_point() and value.dim() > 1:
                value.copy_(0.05 * torch.randn_like(value))
    model.save_pretrained(folder)
    return {}


def loaded(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    # The other ways of experts know no fp64.
    config._experts_implementation = "eager"
    return transformers.AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32)


def loss(folder, step):
    model = loaded(folder).double()
    words = min(model.config.vocab_size, 256)
    first = (int(step) - 1) * BATCH
    tokens = torch.tensor([sample(first + i, SEED, words, LENGTH) for i in range(BATCH)])
    with torch.no_grad():
        logits = model(tokens[:, :-1]).logits.double()
    return {"loss": F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).item()}


def tensors(folder):
    from safetensors.torch import load_file

    found = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            found |= load_file(f"{folder}/{name}")
    return found


def equal(one, other):
    one, other = tensors(one), tensors(other)
    assert one.keys() == other.keys(), one.keys() ^ other.keys()
    for name in one:
        # Biases of routers follow the number of tokens whatever the learning rate is.
        if not name.endswith("e_score_correction_bias"):
            assert torch.equal(one[name], other[name]), name
    return {}


def same(folder):
    # As torch's own distributed checkpoints read such a folder, tensor by tensor.
    held = tensors(folder)
    state = {name: torch.zeros_like(value) for name, value in held.items()}
    reader = torch.distributed.checkpoint.HuggingFaceStorageReader(folder)
    torch.distributed.checkpoint.load(state, storage_reader=reader, no_dist=True)
    assert all(torch.equal(state[name], held[name]) for name in held)
    assert os.path.exists(f"{folder}/model.safetensors.index.json")
    model = loaded(folder)
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)
        again = loaded(saved)
        assert {name: value.shape for name, value in tensors(folder).items()} == {
            name: value.shape for name, value in tensors(saved).items()}
        equal(folder, saved)
    prompt = torch.arange(5).unsqueeze(0)
    tokens = [m.generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=0) for m in (model, again)]
    assert torch.equal(*tokens)
    return {}


print(json.dumps({"make": make, "loss": loss, "same": same, "equal": equal}[sys.argv[1]](*sys.argv[2:])))
