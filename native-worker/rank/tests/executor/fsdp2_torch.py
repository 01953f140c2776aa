"""A decoder of plain PyTorch that torch's own `fully_shard` cuts up and trains, over gloo on CPUs: for tests that hold
shardplan-rank against it, and for timing beside it. It knows plan files and nothing of the executor.

Usage: fsdp2_torch.py PLAN STEPS prints the seconds of each step, from random weights, as one line of JSON.
"""

import json
import os
import pickle
import sys
import tempfile
import time
import traceback
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from reference import sample

TYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}


class Norm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.weight, self.eps)


class Attention(nn.Module):
    def __init__(self, model):
        super().__init__()
        hidden, sizes, eps = model["hidden_size"], model["attention"], model.get("norm_eps", 1e-5)
        self.heads, self.kv_heads, self.width = sizes["heads"], sizes["kv_heads"], sizes["head_dim"]
        bias = sizes.get("qkv_bias", False)
        self.q_proj = nn.Linear(hidden, self.heads * self.width, bias=bias)
        self.k_proj = nn.Linear(hidden, self.kv_heads * self.width, bias=bias)
        self.v_proj = nn.Linear(hidden, self.kv_heads * self.width, bias=bias)
        if sizes.get("qk_norm") == "per_head":
            self.q_norm, self.k_norm = Norm(self.width, eps), Norm(self.width, eps)
        self.o_proj = nn.Linear(self.heads * self.width, hidden, bias=sizes.get("out_bias", False))

    def forward(self, x, cos, sin):
        b, s, _ = x.shape
        split = lambda y, n: y.view(b, s, n, self.width)
        q, k = split(self.q_proj(x), self.heads), split(self.k_proj(x), self.kv_heads)
        v = split(self.v_proj(x), self.kv_heads)
        if hasattr(self, "q_norm"):
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (y.transpose(1, 2) for y in (rotate(q, cos, sin), rotate(k, cos, sin), v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        return self.o_proj(mixed.transpose(1, 2).reshape(b, s, -1))


def rotate(x, cos, sin):
    """x: [batch, tokens, heads, head_dim], halves against each other."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class Mlp(nn.Module):
    def __init__(self, model):
        super().__init__()
        hidden, width, bias = model["hidden_size"], model["ffn_hidden_size"], model.get("mlp_bias", False)
        self.gate_proj = nn.Linear(hidden, width, bias=bias)
        self.up_proj = nn.Linear(hidden, width, bias=bias)
        self.down_proj = nn.Linear(width, hidden, bias=bias)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, model):
        super().__init__()
        eps = model.get("norm_eps", 1e-5)
        self.input_layernorm = Norm(model["hidden_size"], eps)
        self.self_attn = Attention(model)
        self.post_attention_layernorm = Norm(model["hidden_size"], eps)
        self.mlp = Mlp(model)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.theta, self.width = model.get("rope_theta", 10_000.0), model["attention"]["head_dim"]
        self.embed_tokens = nn.Embedding(model["vocab_size"], model["hidden_size"])
        self.layers = nn.ModuleList(Layer(model) for _ in range(model["num_layers"]))
        self.norm = Norm(model["hidden_size"], model.get("norm_eps", 1e-5))
        self.lm_head = nn.Linear(model["hidden_size"], model["vocab_size"], bias=False)
        if model.get("tied_embeddings"):
            self.lm_head.weight = self.embed_tokens.weight

    def angles(self, x):
        """Cosines and sines of the positions of `x`, [batch, tokens, hidden]."""
        inverse = 1.0 / self.theta ** (torch.arange(0, self.width, 2, dtype=torch.float64) / self.width)
        angles = torch.outer(torch.arange(x.shape[1], dtype=torch.float64), inverse)
        angles = torch.cat((angles, angles), -1).unsqueeze(1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        cos, sin = self.angles(x)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.lm_head(self.norm(x))


class Setting:
    """What a plan file says of a training under FSDP2."""

    def __init__(self, plan):
        self.model, training, run = plan["model"]["architecture"], plan["training"], plan["run"]
        layout, self.world = plan["layout"], plan["cluster"]["gpus_per_node"]
        fsdp = layout.get("fsdp", {})
        # What this script does not know must not be passed over.
        unknown = {name: layout[name] for name in layout.keys() - {"dp_replicate", "fsdp"} if layout[name] != 1}
        assert not unknown and fsdp.keys() <= {"reshard_after_forward", "outer_units", "gradient_sync", "reduce_dtype"}, layout
        self.replicas = layout.get("dp_replicate", 1)
        self.reshard, self.apart = fsdp.get("reshard_after_forward", "default"), fsdp.get("outer_units") == "apart"
        self.sync_last = fsdp.get("gradient_sync") == "last"
        self.compute = TYPES[training["dtype"]]
        self.exact = torch.float64 if self.compute == torch.float64 else torch.float32
        self.rounds = self.compute != torch.float64
        self.reduce = TYPES[fsdp["reduce_dtype"]] if "reduce_dtype" in fsdp else self.exact
        self.sequence, self.rows, self.batch = training["seq_len"], training["micro_batch_size"], training["global_batch_size"]
        self.microbatches = self.batch // (self.rows * self.world)
        self.seed, self.words = run.get("seed", 1234), min(self.model["vocab_size"], 256)
        self.lr, self.decay, self.clip = run["lr"], run.get("weight_decay", 0.1), run.get("clip_grad", 1.0)
        self.optimizer, self.steps = training["optimizer"], run["steps"]

    def tokens(self, step, rank, microbatch):
        """Inputs and targets of a micro batch of step `step`, from 1."""
        first = (step - 1) * self.batch + (microbatch * self.world + rank) * self.rows
        rows = [sample(first + row, self.seed, self.words, self.sequence + 1) for row in range(self.rows)]
        tokens = torch.tensor(rows)
        return tokens[:, :-1], tokens[:, 1:]

    def optimizer_of(self, decoder, **options):
        plain = [p for name, p in decoder.named_parameters() if "norm" in name or name.endswith("bias")]
        matrices = [p for name, p in decoder.named_parameters() if not ("norm" in name or name.endswith("bias"))]
        groups = [{"params": plain, "weight_decay": 0.0}, {"params": matrices, "weight_decay": self.decay}]
        said = self.optimizer
        if said["kind"] == "sgd":
            # Decoupled decay is none of torch's SGD.
            assert self.decay == 0.0
            return torch.optim.SGD(groups, lr=self.lr, momentum=said.get("momentum", 0.9))
        betas = (said.get("beta1", 0.9), said.get("beta2", 0.95))
        return torch.optim.AdamW(groups, lr=self.lr, betas=betas, eps=said.get("eps", 1e-8), **options)


def sharded(setting, decoder):
    """The decoder as `fully_shard` cuts it: each layer, then what is left."""
    shards = setting.world // setting.replicas
    if setting.replicas > 1:
        mesh = init_device_mesh("cpu", (setting.replicas, shards), mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh("cpu", (shards,), mesh_dim_names=("shard",))
    policy = {}
    if setting.compute != setting.exact or setting.reduce != setting.exact:
        policy = {"mp_policy": MixedPrecisionPolicy(param_dtype=setting.compute, reduce_dtype=setting.reduce)}
    last = len(decoder.layers) - 1
    given_back = lambda usual: {"default": usual, "always": True, "never": False}.get(setting.reshard, setting.reshard)
    for number, layer in enumerate(decoder.layers):
        fully_shard(layer, mesh=mesh, reshard_after_forward=given_back(number != last), **policy)
    if setting.apart:
        fully_shard(decoder.embed_tokens, mesh=mesh, reshard_after_forward=given_back(True), **policy)
        fully_shard([decoder.norm, decoder.lm_head], mesh=mesh, reshard_after_forward=False, **policy)
    fully_shard(decoder, mesh=mesh, reshard_after_forward=False, **policy)
    for module in (decoder, *decoder.layers, *([decoder.embed_tokens, decoder.norm] if setting.apart else [])):
        # gloo has no mean.
        module.set_force_sum_reduction_for_comms(True)
    return decoder


def trained(setting, decoder, rank, tokens, steps):
    """Trains step by step; yields the mean loss of this rank, the loss of each of its tokens and the norm, with gradients
    before they are clipped still there, then again after the update."""
    optimizer = setting.optimizer_of(decoder)
    for step in range(1, steps + 1):
        losses = []
        for microbatch in range(setting.microbatches):
            if setting.sync_last:
                decoder.set_requires_gradient_sync(microbatch + 1 == setting.microbatches)
            inputs, targets = tokens(step, rank, microbatch)
            logits = decoder(inputs).to(setting.exact).flatten(0, 1)
            loss = F.cross_entropy(logits, targets.flatten(), reduction="none")
            (loss.mean() / setting.microbatches).backward()
            losses.append(loss.detach())
        yield step, "reduced", torch.cat(losses)
        # Clipped as torch does it, without what it adds to the norm.
        norm = nn.utils.get_total_norm([p.grad for p in decoder.parameters()]).full_tensor()
        for parameter in decoder.parameters():
            parameter.grad.to_local().mul_(min(1.0, setting.clip / norm.item()) if setting.clip > 0 else 1.0)
        optimizer.step()
        yield step, "updated", norm.item()
        optimizer.zero_grad()


def on_ranks(world, works):
    """What each of the works gives on each of so many processes that talk by gloo. They are forks: importing torch takes seconds.
    All works are done by the same ones, one after the other: what torch does for the first time takes longer than most works."""
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(world):
            child = os.fork()
            if child == 0:
                code, number = 1, None
                try:
                    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
                    torch.set_num_threads(1)
                    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
                    for number, work in enumerate(works):
                        with open(f"{folder}/{number}-{rank}", "wb") as file:
                            pickle.dump(work(rank), file)
                    dist.barrier()
                    dist.destroy_process_group()
                    code = 0
                except BaseException:
                    traceback.print_exc()
                    print(f"rank {rank} of {world} failed in work {number}", file=sys.stderr)
                finally:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(code)
            children.append(child)
        for _ in range(world):
            _, status = os.wait()
            if status != 0:
                # The others may wait for the one that failed.
                for child in children:
                    try:
                        os.kill(child, 9)
                    except ProcessLookupError:
                        pass
                sys.exit("a rank failed")
        return [[pickle.load(open(f"{folder}/{number}-{rank}", "rb")) for rank in range(world)] for number in range(len(works))]


def timed(setting, steps):
    """Seconds of each step on the slowest rank."""

    def work(rank):
        torch.manual_seed(0)
        decoder = sharded(setting, Decoder(setting.model).to(setting.exact))
        # Made before the clock runs: reading is not what is compared.
        known = {(step, m): setting.tokens(step, rank, m) for step in range(1, steps + 1) for m in range(setting.microbatches)}
        seconds, start = [], time.perf_counter()
        for _, when, _ in trained(setting, decoder, rank, lambda step, _, m: known[step, m], steps):
            if when == "updated":
                seconds.append(time.perf_counter() - start)
                start = time.perf_counter()
        return seconds

    return [max(step) for step in zip(*on_ranks(setting.world, [work])[0])]


def main():
    plan, steps = sys.argv[1:]
    with open(plan) as file:
        print(json.dumps(timed(Setting(json.load(file)), int(steps))))


# Ranks are forked from here, and threads do not survive that.
torch.set_num_threads(1)
warnings.filterwarnings("ignore", message=".*reduce_scatter.*")

if __name__ == "__main__":
    main()
