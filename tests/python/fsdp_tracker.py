"""Peak memory by category of FSDP2 training steps, as torch's FSDPMemTracker counts it.

Fake tensors over a fake process group, so neither a GPU nor memory is needed: rank 0 of a decoder (RMSNorm that saves
its input, its weight and an fp32 statistic, separate q, k, v, o, causal attention, SwiGLU in eager mode, untied
embedding and output, fp32 logits). Four layers, because all but the first and the last do the same. Each layer, the
embedding, norm and output together, then the root are units. Two steps with AdamW; the peak is that of forward and
backward of the second.

    python tests/python/fsdp_tracker.py > planner/tests/data/torch_fsdp_tracker.json
"""

import contextlib
import json
import multiprocessing
import os
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.fsdp._fully_shard._fully_shard as fully_shard_module
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker, _FSDPRefType
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import _disable_current_modes

COMMAND = "python tests/python/fsdp_tracker.py > planner/tests/data/torch_fsdp_tracker.json"
NAMES = {torch.bfloat16: "bfloat16", torch.float32: "float32"}


# Meshes are made of real tensors, fake mode or not.
make_mesh = fully_shard_module._get_post_forward_mesh_info


def make_real_mesh(*arguments):
    with _disable_current_modes():
        return make_mesh(*arguments)


fully_shard_module._get_post_forward_mesh_info = make_real_mesh

# The tracker takes parts of parameters that stay between forward and backward for activations.
trackers, keep_part = [], FSDPParam.to_sharded_post_forward


def keep_tracked_part(self):
    keep_part(self)
    for tracker in trackers:
        part = self._sharded_post_forward_param_data
        tracker._update_and_maybe_create_winfos(part, _FSDPRefType.UNSHARDED_PARAM, update_existing=True)


FSDPParam.to_sharded_post_forward = keep_tracked_part


class Norm(torch.autograd.Function):
    """RMSNorm that keeps what the fused CUDA kernel keeps."""

    @staticmethod
    def forward(ctx, x, weight):
        rstd = torch.rsqrt(x.float().pow(2).mean(-1) + 1e-6)
        ctx.save_for_backward(x, weight, rstd)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx, grad):
        x, weight, rstd = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight)


class RmsNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return Norm.apply(x, self.weight)


class Layer(nn.Module):
    def __init__(self, m):
        super().__init__()
        h, d = m["hidden"], m["head_dim"]
        self.heads, self.kv_heads, self.dim = m["heads"], m["kv_heads"], d
        self.norm1, self.norm2 = RmsNorm(h), RmsNorm(h)
        linear = lambda a, b: nn.Linear(a, b, bias=False)
        self.q, self.k = linear(h, self.heads * d), linear(h, self.kv_heads * d)
        self.v, self.o = linear(h, self.kv_heads * d), linear(self.heads * d, h)
        self.w1, self.w3, self.w2 = linear(h, m["ffn"]), linear(h, m["ffn"]), linear(m["ffn"], h)

    def forward(self, x):
        b, s, _ = x.shape
        y = self.norm1(x)
        split = lambda t, n: t.view(b, s, n, self.dim).transpose(1, 2)
        q, k, v = split(self.q(y), self.heads), split(self.k(y), self.kv_heads), split(self.v(y), self.kv_heads)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        x = x + self.o(o.transpose(1, 2).reshape(b, s, -1))
        y = self.norm2(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))


class Decoder(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.embedding = nn.Embedding(m["vocab"], m["hidden"])
        self.layers = nn.ModuleList(Layer(m) for _ in range(m["layers"]))
        self.norm = RmsNorm(m["hidden"])
        self.output = nn.Linear(m["hidden"], m["vocab"], bias=False)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


SMALL = {"hidden": 2048, "heads": 16, "kv_heads": 8, "head_dim": 128, "ffn": 5632, "layers": 4, "vocab": 32000}
WIDE = {"hidden": 2048, "heads": 16, "kv_heads": 16, "head_dim": 128, "ffn": 8192, "layers": 4, "vocab": 2048}


def case(name, model, mesh, seq, micro_batch=1, reshard=True, reduce=torch.float32, param=torch.bfloat16,
         checkpoint=False, accumulation=1, sync_every=True):
    return {"name": name, "model": model, "mesh": mesh, "seq": seq, "micro_batch": micro_batch,
            "reshard_after_forward_layers": reshard, "param_dtype": param, "reduce_dtype": reduce,
            "activation_checkpoint": "full" if checkpoint else "none", "grad_accumulation": accumulation,
            "sync_every": sync_every}


def cases():
    f32, bf16 = torch.float32, torch.bfloat16
    yield case("B_fsdp64_raf_bf16_fp32reduce_fullAC", SMALL, [64], 4096, checkpoint=True)
    yield case("B_fsdp16_raf_bf16_fp32reduce", SMALL, [16], 2048)
    yield case("W_fsdp8_raf_bf16_fp32reduce_fewtokens", WIDE, [8], 256)
    yield case("W_fsdp8_raf_bf16_bf16reduce_fewtokens", WIDE, [8], 256, reduce=None)
    yield case("W_fsdp8_noraf_bf16_fp32reduce_fewtokens", WIDE, [8], 256, reshard=False)
    yield case("W_hsdp2x4_raf_bf16_fp32reduce_fewtokens", WIDE, [2, 4], 256)
    yield case("W_fsdp8_raf_ga3", WIDE, [8], 256, accumulation=3)
    yield case("W_fsdp8_noraf_ga3", WIDE, [8], 256, accumulation=3, reshard=False)
    yield case("W_fsdp8_raf_ga3_nosync", WIDE, [8], 256, accumulation=3, sync_every=False)
    yield case("W_fsdp8_raf_fp32", WIDE, [8], 256, param=None, reduce=None)
    yield case("B_fsdp8_noraf", SMALL, [8], 2048, reshard=False)
    yield case("B_fsdp8_raf_2k_mbs4", SMALL, [8], 2048, micro_batch=4)
    yield case("B_fsdp8_raf_512", SMALL, [8], 512)
    yield case("B_fsdp8_raf_512_fullAC", SMALL, [8], 512, checkpoint=True)
    yield case("B_fsdp8_noraf_512_fullAC", SMALL, [8], 512, checkpoint=True, reshard=False)
    yield case("W_fsdp64_raf_1k_fullAC", WIDE, [64], 1024, checkpoint=True)
    yield case("W_hsdp4x2_noraf_512", WIDE, [4, 2], 512, reshard=False)
    yield case("W_fsdp8_to2_fewtokens", WIDE, [8], 256, reshard=2)
    yield case("W_fsdp64_to8_bf16reduce", WIDE, [64], 256, reshard=8, reduce=None)
    yield case("W_hsdp2x8_to4_fullAC", WIDE, [2, 8], 512, reshard=4, checkpoint=True)
    yield case("W_fsdp16_to4_ga3_nosync", WIDE, [16], 512, reshard=4, accumulation=3, sync_every=False)
    yield case("W_fsdp8_odd", {**WIDE, "hidden": 1800, "head_dim": 100, "heads": 18, "kv_heads": 6, "ffn": 4100, "vocab": 3001}, [8], 256)


def sizes(snapshot):
    total = {}
    for device, values in snapshot.items():
        for key, value in values.items():
            name = getattr(key, "value", None) or str(key)
            total[name] = total.get(name, 0) + int(value)
    return total


def measure(wanted):
    world = 1
    for axis in wanted["mesh"]:
        world *= axis
    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    try:
        names = ("replicate", "shard") if len(wanted["mesh"]) > 1 else ("shard",)
        mesh = init_device_mesh("cpu", tuple(wanted["mesh"]), mesh_dim_names=names)
        policy = MixedPrecisionPolicy(param_dtype=wanted["param_dtype"], reduce_dtype=wanted["reduce_dtype"])
        with FakeTensorMode():
            model = Decoder(wanted["model"])
            reshard = wanted["reshard_after_forward_layers"]
            for index, layer in enumerate(model.layers):
                if wanted["activation_checkpoint"] == "full":
                    layer = checkpoint_wrapper(layer, preserve_rng_state=False)
                    model.layers[index] = layer
                fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
            fully_shard(model.embedding, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
            fully_shard([model.norm, model.output], mesh=mesh, mp_policy=policy, reshard_after_forward=False)
            fully_shard(model, mesh=mesh, mp_policy=policy)
            optimizer = torch.optim.AdamW(model.parameters(), fused=True)
            m, b, s = wanted["model"], wanted["micro_batch"], wanted["seq"]
            ids = torch.randint(0, m["vocab"], (b, s))
            labels = torch.randint(0, m["vocab"], (b, s))
            tracker = FSDPMemTracker(model, optimizer)
            tracker.track_inputs((ids, labels))
            trackers[:] = [tracker]
            parameters = sum(p.numel() for p in model.parameters())
            local = sum(p.to_local().numel() for p in model.parameters())
            result = {}
            with tracker:
                for step in range(2):
                    count = wanted["grad_accumulation"]
                    for micro in range(count):
                        if not wanted["sync_every"]:
                            model.set_requires_gradient_sync(micro == count - 1)
                        logits = model(ids)
                        loss = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
                        del logits
                        loss.backward()
                        del loss
                        if step == 0:
                            tracker.reset_mod_stats()
                        elif micro < count - 1:
                            tracker.memory_tracking.clear()
                    if step == 1:
                        result["peak_bytes_fwd_bwd"] = sizes(tracker.get_tracker_snapshot("peak"))
                        result["after_last_backward_bytes"] = sizes(tracker.get_tracker_snapshot("current"))
                    optimizer.step()
                    optimizer.zero_grad()
                    if step == 0:
                        tracker.reset_mod_stats()
                        tracker._peak_mem.clear() if hasattr(tracker, "_peak_mem") else None
                        tracker._peak_mem_snap.clear() if hasattr(tracker, "_peak_mem_snap") else None
            return {**{k: (NAMES.get(v, "= param_dtype" if k == "reduce_dtype" else "float32") if k.endswith("_dtype") else v) for k, v in wanted.items()},
                    "mesh_kind": "HSDP (replicate, shard)" if len(wanted["mesh"]) > 1 else "FSDP (shard)",
                    "n_params_global": parameters, "n_params_local_rank0": local, **result}
    finally:
        dist.destroy_process_group()


def quietly(wanted):
    with contextlib.redirect_stdout(sys.stderr):
        found = measure(wanted)
        print(wanted["name"], found["peak_bytes_fwd_bwd"], flush=True)
    return found


def main():
    warnings.filterwarnings("ignore")
    only = sys.argv[1:]
    wanted = [case for case in cases() if not only or any(name in case["name"] for name in only)]
    # It is Python that takes the time, not torch.
    with multiprocessing.get_context("fork").Pool(len(os.sched_getaffinity(0))) as pool:
        found = pool.map(quietly, wanted, chunksize=1)
    json.dump({"command": COMMAND, "torch_version": torch.__version__, "cases": found}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
