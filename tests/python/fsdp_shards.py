"""Local shapes of parameters as torch's FSDP2, HSDP and tensor parallelism make them.

Each case is a plan file. For some of its ranks a model is built on the meta device over fake process groups, cut by
parallelize_module and fully_shard, and its parameters' local shapes, offsets and padded sizes are written as JSON on
stdout, together with the mesh axes that the rank is in.

    python tests/python/fsdp_shards.py > planner/tests/data/torch_fsdp_shards.json
"""

import json
import os
import sys
import traceback
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore

COMMAND = "python tests/python/fsdp_shards.py > planner/tests/data/torch_fsdp_shards.json"


def architecture(**changes):
    """A small model whose sizes are multiples of 8 unless changed."""
    attention = {"kind": "gqa", "heads": 8, "kv_heads": 4, "head_dim": 8}
    attention.update(changes.pop("attention", {}))
    sizes = {"num_layers": 2, "hidden_size": 64, "ffn_hidden_size": 96, "vocab_size": 256}
    return {**sizes, "attention": attention, **changes}


def experts(count, width):
    return {"moe": {"experts": count, "top_k": 2, "ffn_hidden_size": width}}


def case(name, world, layout, model):
    return {
        "name": name,
        "plan": {
            "version": 1,
            "model": {"architecture": model},
            "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": world},
            "runtime": "fsdp2",
            "layout": layout,
            "training": {"global_batch_size": 5040, "seq_len": 5040},
        },
    }


EVEN = architecture()
UNEVEN = architecture(hidden_size=50, ffn_hidden_size=70, vocab_size=101, attention={"heads": 6, "kv_heads": 2})
TIED = architecture(tied_embeddings=True)
BIASED = architecture(attention={"qkv_bias": True, "qk_norm": "per_head", "out_bias": True}, mlp_bias=True)
NO_SP = {"sp": False}
USER_PLAN = {
    "model.layers.*.self_attn.q_proj": "colwise",
    "model.layers.*.self_attn.k_proj": "colwise",
    "model.layers.*.self_attn.v_proj": "colwise",
    "model.layers.*.self_attn.o_proj": "rowwise",
    "model.embed_tokens": "colwise",
    "model.layers.1.mlp.up_proj": "colwise",
    "lm_head": "rowwise",
}

CASES = [
    case("fsdp 4", 4, {}, EVEN),
    case("fsdp 7, nothing divides", 7, {}, UNEVEN),
    case("fsdp 3, biases and head norms", 3, {}, BIASED),
    case("fsdp 8, tied embeddings", 8, {}, TIED),
    case("fsdp 16 over rows of 10", 16, {}, architecture(hidden_size=10, ffn_hidden_size=9, vocab_size=17)),
    case("hsdp 2 x 4", 8, {"dp_replicate": 2}, EVEN),
    case("hsdp 3 x 2, uneven", 6, {"dp_replicate": 3}, UNEVEN),
    case("cp 2 is sharded over too", 8, {"cp": 2}, EVEN),
    case("hsdp 2 x 2, cp 2, tp 2", 16, {"dp_replicate": 2, "cp": 2, "tp": 2}, EVEN),
    case("tp 2, sequence parallel", 2, {"tp": 2}, EVEN),
    case("tp 4", 4, {"tp": 4, **NO_SP}, BIASED),
    case("tp 2 with fsdp 2", 4, {"tp": 2}, EVEN),
    case("tp 2 with fsdp 3, rows left over", 6, {"tp": 2, **NO_SP}, BIASED),
    case("tp 2 with fsdp 4, tied", 8, {"tp": 2}, TIED),
    case("tp 2 with fsdp 2, uneven", 4, {"tp": 2, **NO_SP}, UNEVEN),
    case("tp 2 by a user's plan", 4, {"tp": 2, "tp_plan": USER_PLAN, **NO_SP}, EVEN),
    case("pp 2 with fsdp 2 and tp 2", 8, {"pp": 2, "tp": 2}, EVEN),
    case("experts without ep", 4, {}, architecture(**experts(6, 40))),
    case("fewer experts than ranks", 8, {}, architecture(**experts(4, 40))),
    case("ep 4", 4, {"ep": 4}, architecture(**experts(8, 40))),
    case("ep 2 with ep_shard 4", 8, {"ep": 2}, architecture(**experts(8, 40))),
    case("ep 4 over tp 2, ep_shard 4", 16, {"ep": 4, "tp": 2}, architecture(**experts(8, 32))),
    case("ep 2, hsdp 2 x 2", 4, {"ep": 2, "dp_replicate": 2}, architecture(**experts(4, 40))),
    case("pp 2 with ep 2", 8, {"pp": 2, "ep": 2}, architecture(**experts(4, 40), mlp_bias=True)),
]


def parameter(*shape):
    return nn.Parameter(torch.empty(*shape, device="meta"))


class Weight(nn.Module):
    """A norm: one vector."""

    def __init__(self, size):
        super().__init__()
        self.weight = parameter(size)


def linear(inputs, outputs, bias):
    return nn.Linear(inputs, outputs, bias=bias, device="meta")


class Attention(nn.Module):
    def __init__(self, model):
        super().__init__()
        hidden, sizes = model["hidden_size"], model["attention"]
        width, bias = sizes["head_dim"], sizes.get("qkv_bias", False)
        queries, keys = sizes["heads"] * width, sizes["kv_heads"] * width
        self.q_proj = linear(hidden, queries, bias)
        self.k_proj = linear(hidden, keys, bias)
        self.v_proj = linear(hidden, keys, bias)
        if sizes.get("qk_norm") == "per_head":
            self.q_norm = Weight(width)
            self.k_norm = Weight(width)
        self.o_proj = linear(queries, hidden, sizes.get("out_bias", False))


class Mlp(nn.Module):
    def __init__(self, model):
        super().__init__()
        hidden, width, bias = model["hidden_size"], model["ffn_hidden_size"], model.get("mlp_bias", False)
        self.gate_proj = linear(hidden, width, bias)
        self.up_proj = linear(hidden, width, bias)
        self.down_proj = linear(width, hidden, bias)


class Experts(nn.Module):
    def __init__(self, model):
        super().__init__()
        count, width = model["moe"]["experts"], model["moe"]["ffn_hidden_size"]
        hidden = model["hidden_size"]
        self.gate_and_up_projs = parameter(count, hidden, 2 * width)
        self.down_projs = parameter(count, width, hidden)
        if model.get("mlp_bias", False):
            self.gate_up_proj_bias = parameter(count, 2 * width)
            self.down_proj_bias = parameter(count, hidden)


class Mixture(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.gate = linear(model["hidden_size"], model["moe"]["experts"], False)
        self.experts = Experts(model)


class Layer(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.input_layernorm = Weight(model["hidden_size"])
        self.self_attn = Attention(model)
        self.post_attention_layernorm = Weight(model["hidden_size"])
        self.mlp = Mixture(model) if "moe" in model else Mlp(model)


class Inner(nn.Module):
    def __init__(self, model, layers, first, last):
        super().__init__()
        if first:
            self.embed_tokens = nn.Embedding(model["vocab_size"], model["hidden_size"], device="meta")
        self.layers = nn.ModuleDict({str(layer): Layer(model) for layer in layers})
        if last:
            self.norm = Weight(model["hidden_size"])


class Decoder(nn.Module):
    """The part of a model that one pipeline stage has."""

    def __init__(self, model, layers, first, last):
        super().__init__()
        self.model = Inner(model, layers, first, last)
        self.tied = model.get("tied_embeddings", False)
        if last:
            self.lm_head = linear(model["hidden_size"], model["vocab_size"], False)
            self.tie()

    def tie(self):
        if self.tied:
            self.lm_head.weight = self.model.embed_tokens.weight


STYLES = {
    "colwise": lambda: ColwiseParallel(),
    "rowwise": lambda: RowwiseParallel(),
    "colwise_rep": lambda: ColwiseParallel(output_layouts=Replicate()),
    "rowwise_rep": lambda: RowwiseParallel(input_layouts=Replicate()),
    "sequence_parallel": lambda: SequenceParallel(),
}

DEFAULT_PLAN = {
    "model.embed_tokens": "rowwise_rep",
    "model.layers.*.self_attn.q_proj": "colwise",
    "model.layers.*.self_attn.k_proj": "colwise",
    "model.layers.*.self_attn.v_proj": "colwise",
    "model.layers.*.self_attn.o_proj": "rowwise",
    "model.layers.*.mlp.up_proj": "colwise",
    "model.layers.*.mlp.gate_proj": "colwise",
    "model.layers.*.mlp.down_proj": "rowwise",
    "lm_head": "colwise_rep",
}


def cut_by_tp(model, mesh, layout):
    styles = layout.get("tp_plan", DEFAULT_PLAN)
    plan = {pattern: STYLES[style]() for pattern, style in styles.items()}
    with warnings.catch_warnings():
        # A plan of the whole model names modules that a pipeline stage has not.
        warnings.simplefilter("ignore")
        parallelize_module(model, mesh, plan)
    if hasattr(model, "lm_head"):
        model.tie()


def shard_experts(experts, mesh):
    for name, value in list(experts.named_parameters()):
        cut = distribute_tensor(value, mesh["ep"], [Shard(0)], src_data_rank=None)
        experts.register_parameter(name, nn.Parameter(cut))
    fully_shard(experts, mesh=mesh["ep_shard"], shard_placement_fn=lambda p: Shard(1 if p.ndim > 1 else 0))


def few_experts(shards, count):
    """Whole rows of the next dim where there are more ranks than experts."""

    def placement(value):
        if value.ndim == 3 and shards > count and value.shape[1] % shards == 0:
            return Shard(1)
        return None

    return placement


def build(plan):
    """The sharded stage of this rank, and the ranks of each mesh axis that it is in."""
    layout, model = plan["layout"], plan["model"]["architecture"]
    world = plan["cluster"]["gpus_per_node"]
    tp, cp, pp, ep = (layout.get(axis, 1) for axis in ("tp", "cp", "pp", "ep"))
    replicate = layout.get("dp_replicate", 1)
    shard = world // (tp * cp * pp * replicate)
    names = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
    mesh = init_device_mesh("cpu", (pp, replicate, shard, cp, tp), mesh_dim_names=names)
    flat = {
        "dp": mesh["dp_replicate", "dp_shard"]._flatten("dp"),
        "dp_shard_cp": mesh["dp_shard", "cp"]._flatten("dp_shard_cp"),
        "dp_cp": mesh["dp_replicate", "dp_shard", "cp"]._flatten("dp_cp"),
    }
    axes = {name: mesh[name] for name in names} | flat
    per_stage = model["num_layers"] // pp
    stage = mesh["pp"].get_local_rank()
    layers = range(stage * per_stage, (stage + 1) * per_stage)
    decoder = Decoder(model, layers, stage == 0, stage == pp - 1)
    if tp > 1:
        cut_by_tp(decoder, mesh["tp"], layout)
    if replicate > 1:
        over = mesh["dp_replicate", "dp_shard_cp"]
    else:
        over = flat["dp_shard_cp"]
    placement = None
    if "moe" in model:
        expert_axes = ("pp_of_experts", "ep_shard", "ep")
        sizes = (pp, world // pp // ep, ep)
        expert_mesh = init_device_mesh("cpu", sizes, mesh_dim_names=expert_axes)
        axes |= {name: expert_mesh[name] for name in ("ep_shard", "ep")}
        if ep > 1:
            for layer in decoder.model.layers.values():
                shard_experts(layer.mlp.experts, expert_mesh)
        else:
            placement = few_experts(shard * cp, model["moe"]["experts"])
    for layer in decoder.model.layers.values():
        fully_shard(layer, mesh=over, shard_placement_fn=placement)
    fully_shard(decoder, mesh=over, reshard_after_forward=False)
    return decoder, {name: axis.mesh.flatten().tolist() for name, axis in axes.items()}


def padded_sizes(decoder):
    """Elements that each parameter's shard allocates, by the identity of the parameter."""
    found = {}
    for module in decoder.modules():
        if not hasattr(module, "_get_fsdp_state"):
            continue
        group = module._get_fsdp_state()._fsdp_param_group
        for param in group.fsdp_params if group else []:
            found[id(param.sharded_param)] = param._sharded_param_data.numel()
    return found


def shards(decoder):
    padded = padded_sizes(decoder)
    rows = []
    for name, value in decoder.named_parameters():
        assert isinstance(value, DTensor), name
        _, offset = compute_local_shape_and_global_offset(value.shape, value.device_mesh, value.placements)
        local = list(value.to_local().shape)
        # An empty slice has no place.
        offset = list(offset) if 0 not in local else None
        rows.append([name, list(value.shape), local, offset, padded[id(value)]])
    return sorted(rows)


def one_rank(plan, rank):
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=plan["cluster"]["gpus_per_node"])
    decoder, axes = build(plan)
    return {"rank": rank, "axes": axes, "shards": shards(decoder)}


def in_child(work, *arguments):
    """The result of `work` in a process of its own: torch caches what a mesh says of its rank."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            with os.fdopen(writer, "w") as out:
                json.dump(work(*arguments), out)
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as source:
        text = source.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        sys.exit(f"a rank failed: {arguments}")
    return json.loads(text)


def ranks_of(world):
    if world <= 4:
        return range(world)
    return sorted({0, 1, world // 2, world - 2, world - 1})


def main():
    # Flattened axes are sliced from the root mesh as those who train do.
    warnings.filterwarnings("ignore", message="Slicing a flattened dim")
    # Loads once what torch loads late; on meshes that no case has, so that nothing cached is asked for again.
    for layout in ({"tp": 2}, {"ep": 10, "dp_replicate": 5}):
        model = architecture(**experts(10, 40)) if "ep" in layout else EVEN
        one_rank(case("warm up", 20, layout, model)["plan"], 0)
        dist.destroy_process_group()
    result = []
    for entry in CASES:
        plan = entry["plan"]
        world = plan["cluster"]["gpus_per_node"]
        ranks = []
        for rank in ranks_of(world):
            ranks.append(in_child(one_rank, plan, rank))
        result.append({**entry, "ranks": ranks})
    head = {
        "what": "name, whole shape, local shape, offset (null where empty) and allocated elements of each parameter",
        "command": COMMAND,
        "torch": torch.__version__.split("+")[0],
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    lines.append(' "cases": [')
    for number, entry in enumerate(result):
        comma = "," if number + 1 < len(result) else ""
        lines.append("  " + json.dumps(entry, separators=(",", ":")) + comma)
    sys.stdout.write("{\n" + "\n".join(lines) + "\n ]\n}\n")


if __name__ == "__main__":
    main()
