"""PyTorch on the shapes of a plan, for tokens per second beside Shardplan's executor.

usage: baseline.py PLAN.json eager|compile

A decoder of grouped-query attention, rotary positions, RMSNorm and SwiGLU, as the plan's architecture says; fp32
weights under bf16 autocast, fused AdamW where there is a GPU, gradients accumulated over micro batches and clipped.
Prints one JSON object.
"""

import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, model):
        super().__init__()
        attention, hidden = model["attention"], model["hidden_size"]
        self.heads, self.kv_heads = attention["heads"], attention["kv_heads"]
        self.width = attention["head_dim"]
        rows = (self.heads + 2 * self.kv_heads) * self.width
        self.before_attention = nn.RMSNorm(hidden)
        self.qkv = nn.Linear(hidden, rows, bias=False)
        self.proj = nn.Linear(self.heads * self.width, hidden, bias=False)
        self.before_mlp = nn.RMSNorm(hidden)
        self.gate_and_up = nn.Linear(hidden, 2 * model["ffn_hidden_size"], bias=False)
        self.down = nn.Linear(model["ffn_hidden_size"], hidden, bias=False)

    def forward(self, stream, cos, sin):
        batch, length, _ = stream.shape
        mixed = self.qkv(self.before_attention(stream)).view(batch, length, -1, self.width).transpose(1, 2)
        query, key, value = mixed.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        heads = F.scaled_dot_product_attention(
            rotate(query, cos, sin), rotate(key, cos, sin), value, is_causal=True, enable_gqa=True
        )
        stream = stream + self.proj(heads.transpose(1, 2).reshape(batch, length, -1))
        gate, up = self.gate_and_up(self.before_mlp(stream)).chunk(2, dim=-1)
        return stream + self.down(F.silu(gate) * up)


def rotate(heads, cos, sin):
    first, second = heads.chunk(2, dim=-1)
    return (heads * cos + torch.cat((-second, first), dim=-1) * sin).to(heads.dtype)


class Decoder(nn.Module):
    def __init__(self, model, length):
        super().__init__()
        self.words = nn.Embedding(model["vocab_size"], model["hidden_size"])
        self.blocks = nn.ModuleList(Block(model) for _ in range(model["num_layers"]))
        self.norm = nn.RMSNorm(model["hidden_size"])
        self.head = nn.Linear(model["hidden_size"], model["vocab_size"], bias=False)
        width = model["attention"]["head_dim"]
        angles = 10000.0 ** (-torch.arange(0, width, 2).float() / width)
        angles = torch.outer(torch.arange(length).float(), angles).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, inputs, targets):
        stream = self.words(inputs)
        for block in self.blocks:
            stream = block(stream, self.cos, self.sin)
        logits = self.head(self.norm(stream)).float()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main(path, mode):
    with open(path) as file:
        plan = json.load(file)
    model, training, steps = plan["model"]["architecture"], plan["training"], plan["run"]["steps"]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1234)
    decoder = Decoder(model, training["seq_len"]).to(device)
    optimizer = torch.optim.AdamW(decoder.parameters(), lr=plan["run"]["lr"], fused=device == "cuda")
    run = torch.compile(decoder) if mode == "compile" else decoder
    rows, length = training["micro_batch_size"], training["seq_len"]
    parts = training["global_batch_size"] // rows
    seconds, loss = [], None
    for _ in range(steps):
        start = time.perf_counter()
        for _ in range(parts):
            tokens = torch.randint(model["vocab_size"], (rows, length + 1), device=device)
            with torch.autocast(device, torch.bfloat16):
                loss = run(tokens[:, :-1], tokens[:, 1:]) / parts
            loss.backward()
        nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss = float(loss.detach()) * parts  # waits for the GPU
        seconds.append(time.perf_counter() - start)
    # The first steps compile and warm up.
    later = sorted(seconds[len(seconds) // 3 :])
    median = later[len(later) // 2]
    print(
        json.dumps(
            {
                "mode": mode,
                "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
                "torch": torch.__version__,
                "parameters": sum(parameter.numel() for parameter in decoder.parameters()),
                "loss": loss,
                "step_seconds": median,
                "tokens_per_second": training["global_batch_size"] * length / median,
                "allocated_bytes": torch.cuda.memory_allocated() if device == "cuda" else None,
                "peak_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else None,
            }
        )
    )


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[2] not in ("eager", "compile"):
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
