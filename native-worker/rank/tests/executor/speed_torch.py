"""The same decoder trained by plain PyTorch on CPUs, for timing beside shardplan-rank: on one process, eager or compiled, and on
several over gloo, by torch's own data, tensor and pipeline parallelism. It knows plan files and nothing of the executor.

Usage: speed_torch.py PLAN STEPS eager|compile prints the seconds of each step, from random weights, as one line of JSON.
"""

import contextlib
import json
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from fsdp2_torch import Decoder, Setting, on_ranks


class Training:
    """What a plan file says, with the weights in fp32 and products in the plan's type, as autocast has it."""

    def __init__(self, plan, rank, mode):
        layout, world = dict(plan["layout"]), plan["cluster"]["gpus_per_node"]
        self.tp, self.pp = layout.pop("tp", 1), layout.pop("pp", 1)
        assert not layout and (self.tp == 1 or self.pp == 1), plan["layout"]
        self.dp = world // (self.tp * self.pp)
        self.rank, self.replica = rank, rank // (self.tp * self.pp)
        cluster = {**plan["cluster"], "gpus_per_node": self.dp}
        self.setting = Setting({**plan, "layout": {}, "cluster": cluster})
        torch.manual_seed(0)
        decoder = Decoder(self.setting.model)
        self.losses = contextlib.nullcontext
        self.run = decoder
        if self.tp > 1:
            self.cut_heads(decoder)
        elif self.pp > 1:
            decoder = self.stage(decoder)
        elif self.dp > 1:
            self.run = DistributedDataParallel(decoder)
        elif mode == "compile":
            self.run = torch.compile(decoder)
        self.parameters = list(decoder.parameters())
        self.optimizer = self.setting.optimizer_of(decoder, fused=True)

    def cut_heads(self, decoder):
        """Tensor parallelism as torchtitan lays it out, without sequence parallelism; the loss is computed on parts of the vocabulary."""
        mesh = init_device_mesh("cpu", (self.tp,))
        columns, rows = ColwiseParallel, RowwiseParallel
        for layer in decoder.layers:
            plan = {f"self_attn.{name}_proj": columns() for name in "qkv"} | {"self_attn.o_proj": rows()}
            plan |= {"mlp.gate_proj": columns(), "mlp.up_proj": columns(), "mlp.down_proj": rows()}
            parallelize_module(layer, mesh, plan)
            layer.self_attn.heads //= self.tp
            layer.self_attn.kv_heads //= self.tp
        head = columns(output_layouts=Shard(-1), use_local_output=False)
        parallelize_module(decoder, mesh, {"embed_tokens": rows(input_layouts=Replicate()), "lm_head": head})
        self.losses = loss_parallel

    def stage(self, decoder):
        """The layers of this rank's stage, and a schedule that runs them."""
        each = len(decoder.layers) // self.pp
        decoder.layers = decoder.layers[self.rank * each : (self.rank + 1) * each]
        decoder.first, decoder.last = self.rank == 0, self.rank + 1 == self.pp
        if not decoder.first:
            decoder.embed_tokens = None
        if not decoder.last:
            decoder.norm = decoder.lm_head = None
        part = Part(decoder, self.autocast)
        stage = PipelineStage(part, self.rank, self.pp, torch.device("cpu"))
        self.schedule = Schedule1F1B(stage, self.setting.microbatches, loss_fn=self.loss)
        return part

    def autocast(self):
        plain = self.setting.compute == torch.float32
        return contextlib.nullcontext() if plain else torch.autocast("cpu", self.setting.compute)

    def loss(self, logits, targets):
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    def batches(self, step):
        return [self.setting.tokens(step, self.replica, number) for number in range(self.setting.microbatches)]

    def backward(self, batches):
        if self.pp > 1:
            inputs, targets = (torch.cat(parts) for parts in zip(*batches))
            losses = []
            first, last = self.rank == 0, self.rank + 1 == self.pp
            self.schedule.step(*([inputs] if first else []), **({"target": targets, "losses": losses} if last else {}))
            return
        for number, (inputs, targets) in enumerate(batches):
            waits = self.dp > 1 and number + 1 < len(batches)
            with self.run.no_sync() if waits else contextlib.nullcontext():
                with self.losses():
                    with self.autocast():
                        logits = self.run(inputs)
                    (self.loss(logits, targets) / len(batches)).backward()

    def update(self):
        # torch's fused operations take either tensors that are cut or those that are not.
        cut = [parameter for parameter in self.parameters if isinstance(parameter, DTensor)]
        whole = [parameter for parameter in self.parameters if not isinstance(parameter, DTensor)]
        norms = [nn.utils.get_total_norm([parameter.grad for parameter in some]) for some in (cut, whole) if some]
        norm = torch.stack([norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms]).norm()
        if self.pp > 1:
            squares = norm.square()
            dist.all_reduce(squares)
            norm = squares.sqrt()
        for some in (cut, whole):
            nn.utils.clip_grads_with_norm_(some, self.setting.clip, norm)
        self.optimizer.step()
        self.optimizer.zero_grad()


class Part(nn.Module):
    """What one stage of a pipeline computes of a decoder."""

    def __init__(self, decoder, autocast):
        super().__init__()
        self.decoder, self.autocast = decoder, autocast

    def forward(self, x):
        with self.autocast():
            decoder = self.decoder
            x = decoder.embed_tokens(x) if decoder.first else x
            cos, sin = decoder.angles(x)
            for layer in decoder.layers:
                x = layer(x, cos, sin)
            return decoder.lm_head(decoder.norm(x)) if decoder.last else x


def seconds_of(plan, rank, steps, mode):
    training = Training(plan, rank, mode)
    # Made before the clock runs: reading is not what is compared.
    known = [training.batches(step) for step in range(1, steps + 1)]
    seconds = []
    for batches in known:
        start = time.perf_counter()
        training.backward(batches)
        training.update()
        seconds.append(time.perf_counter() - start)
    return seconds


def main():
    path, steps, mode = sys.argv[1:]
    with open(path) as file:
        plan = json.load(file)
    world = plan["cluster"]["gpus_per_node"]
    if world == 1:
        print(json.dumps(seconds_of(plan, 0, int(steps), mode)))
        return
    work = lambda rank: seconds_of(plan, rank, int(steps), mode)
    print(json.dumps([max(step) for step in zip(*on_ranks(world, [work])[0])]))


if __name__ == "__main__":
    main()
