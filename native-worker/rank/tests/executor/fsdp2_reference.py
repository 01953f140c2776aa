"""Runs of shardplan-rank under FSDP2 against torch's own `fully_shard`, on as many processes over gloo, from the same
weights and tokens: losses, norms, and the shard that each rank keeps of each weight and each gradient, element by element.

Usage: fsdp2_reference.py (RUN_FOLDER FIGURES)... FIGURES is JSON: `losses` and `norms` of each step, `bytes` of weights
that each rank keeps.

In fp64 everything must be equal within 1e-10 over all steps, weights too. In other types both round, each in its own order, and
Adam makes of the sign of a gradient near zero a whole step. So there each step begins from the executor's weights, and two
questions are asked of it:
- The gradients stand beside those of one process in fp64 that rounds parameters as they are gathered and nothing else. What
  torch is off that by is what rounding does, and the executor may be off by twice as much. A mean of losses is off by no more
  than the root of the mean square of what they are off by (Cauchy and Schwarz), and a norm by no more than the norm of the
  difference, so that bounds for these follow.
- The weights are what torch's AdamW makes in fp32 of the executor's own gradients. With a unit of rounding u = 2^-24, what is
  taken from a weight is no larger than about the learning rate in the first three steps (a gradient is at most sqrt(3) times the
  root of the mean of squares), and a dozen operations make it, each off by u of something of that size: 32 u lr. The weight
  itself is rounded by decay and difference: 4 u |w|.
"""

import json
import math
import sys

import torch

from fsdp2_torch import Decoder, Setting, on_ranks, sharded, trained

NOTHING = float("nan")


def boxes(path):
    """The parts of a dump: each with its values."""
    with open(path, "rb") as file:
        parts = json.loads(file.readline())
        values = torch.frombuffer(bytearray(file.read()), dtype=torch.float64)
    start = 0
    for part in parts:
        count = math.prod(part["local_shape"])
        yield part, values[start : start + count].view(part["local_shape"])
        start += count
    assert start == values.numel(), path


def placed(path, model):
    """What a rank has dumped, in parameters that are whole and hold nothing else, by the names of the decoder."""
    wholes = {}
    for part, values in boxes(path):
        whole = wholes.setdefault(part["name"], torch.full(part["shape"], NOTHING, dtype=torch.float64))
        place = tuple(slice(first, first + extent) for first, extent in zip(part["offset"], part["local_shape"]))
        assert whole[place].isnan().all(), f"{path}: {part} is there twice"
        whole[place] = values
    # What a rank keeps nothing of is in no dump of it.
    return {name: value for name, value in named(wholes, model).items() if not value.isnan().all()}


def named(tensors, model):
    left, found, sizes = dict(tensors), {}, model["attention"]
    heads = sizes["heads"] // sizes["kv_heads"]

    def put(name, value):
        if value is not None:
            found[name] = value

    put("embed_tokens.weight", left.pop("embedding.weight", None))
    put("lm_head.weight", left.pop("head.weight", None))
    put("norm.weight", left.pop("final_norm.weight", None))
    for number in range(model["num_layers"]):
        of, ours = f"layers.{number}.", lambda name, number=number: left.pop(f"layers.{number}.{name}", None)
        put(of + "input_layernorm.weight", ours("attention.norm.weight"))
        put(of + "post_attention_layernorm.weight", ours("mlp.norm.weight"))
        for part in ("weight", "bias"):
            fused = ours(f"attention.qkv.{part}")
            if fused is not None:
                rows = {"q": fused[:, :heads], "k": fused[:, heads], "v": fused[:, heads + 1]}
                for name, value in rows.items():
                    rest = value.shape[-1:] if part == "weight" else ()
                    put(f"{of}self_attn.{name}_proj.{part}", value.reshape(-1, *rest))
            both = ours(f"mlp.fc1.{part}")
            if both is not None:
                put(f"{of}mlp.gate_proj.{part}", both[0])
                put(f"{of}mlp.up_proj.{part}", both[1])
            put(f"{of}mlp.down_proj.{part}", ours(f"mlp.fc2.{part}"))
        for norm in ("q_norm", "k_norm"):
            put(f"{of}self_attn.{norm}.weight", ours(f"attention.{norm}.weight"))
        output = ours("attention.proj.weight")
        put(of + "self_attn.o_proj.weight", None if output is None else output.flatten(1))
        put(of + "self_attn.o_proj.bias", ours("attention.proj.bias"))
    assert not left, f"not in the decoder: {sorted(left)}"
    return found


def wholes_of(ranks):
    """The whole parameters of which each rank has a part."""
    found = {}
    for rank in ranks:
        for name, value in rank.items():
            whole = found.get(name)
            if whole is None:
                found[name] = value
                continue
            absent = whole.isnan()
            assert (absent | value.isnan() | (whole == value)).all(), f"copies of {name} differ"
            found[name] = torch.where(absent, value, whole)
    assert all(not whole.isnan().any() for whole in found.values())
    return found


def loaded(setting, weights, kind):
    decoder = Decoder(setting.model).to(kind)
    names = {name for name, _ in decoder.named_parameters()}
    assert names == weights.keys(), names ^ weights.keys()
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            assert parameter.shape == weights[name].shape, name
            parameter.copy_(weights[name])
    return decoder


def local(tensor):
    """A rank's shard, in a whole that holds nothing else."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    whole = torch.full(tensor.shape, NOTHING, dtype=torch.float64)
    own = tensor.to_local()
    assert own.shape == torch.Size(shape)
    if own.numel() > 0:
        whole[tuple(slice(first, first + extent) for first, extent in zip(offset, shape))] = own.detach().double()
    return whole


def kept(tensors):
    return {name: whole for name, whole in tensors if not whole.isnan().all()}


def allocated(decoder):
    """Bytes of shards that torch has allocated, padding included."""
    groups = [module._get_fsdp_state()._fsdp_param_group for module in decoder.modules() if hasattr(module, "_get_fsdp_state")]
    params = {id(param): param for group in groups if group for param in group.fsdp_params}
    return sum(param._sharded_param_data.numel() * param._sharded_param_data.element_size() for param in params.values())


def put(decoder, weights):
    """Fills a rank's shards."""
    for name, parameter in decoder.named_parameters():
        own, here = parameter.to_local(), ~local(parameter).isnan()
        own.copy_(weights[name][here].view(own.shape))


def by_torch(setting, weights):
    """The work of each rank, which gives the bytes, the first shards, and of each step losses of tokens, norm, shards of gradients
    and weights. In fp64 it goes its own way from the first of the weights; in other types each step begins from those."""

    def work(rank):
        decoder = sharded(setting, loaded(setting, weights[0], setting.exact))
        parameters = lambda: kept((name, local(p)) for name, p in decoder.named_parameters())
        found = {"bytes": allocated(decoder), "start": parameters(), "steps": []}
        for step, when, said in trained(setting, decoder, rank, setting.tokens, setting.steps):
            if when == "reduced":
                gradients = kept((name, local(p.grad)) for name, p in decoder.named_parameters())
                found["steps"].append({"losses": said.double(), "gradients": gradients})
                continue
            found["steps"][-1] |= {"norm": said, "weights": parameters()}
            if setting.rounds:
                with torch.no_grad():
                    put(decoder, weights[step])
        return found

    return work


def without_rounding(setting, step, weights):
    """Step `step` on one process in fp64, with parameters as they are gathered: losses of tokens, and gradients."""
    decoder = loaded(setting, {name: value.to(setting.compute) for name, value in weights.items()}, torch.float64)
    losses = []
    for rank in range(setting.world):
        for microbatch in range(setting.microbatches):
            inputs, targets = setting.tokens(step, rank, microbatch)
            logits = decoder(inputs).flatten(0, 1)
            losses.append(torch.nn.functional.cross_entropy(logits, targets.flatten(), reduction="none"))
    losses = torch.cat(losses)
    losses.mean().backward()
    return {"losses": losses.detach(), "gradients": {name: p.grad for name, p in decoder.named_parameters()}}


def same_places(what, ours, theirs):
    assert ours.keys() == theirs.keys(), f"{what}: {ours.keys() ^ theirs.keys()}"
    for name in ours:
        assert torch.equal(ours[name].isnan(), theirs[name].isnan()), f"{what}: other elements of {name}"


def flat(tensors):
    return torch.cat([value.flatten() for _, value in sorted(tensors.items())])


def equal(step, ours, theirs, found, torchs):
    """Element by element, against the largest of its tensor; no gradient is smaller than what rounding makes of a sum."""
    for what in ("gradients", "weights"):
        total = flat(theirs[what]).norm()
        for name, value in theirs[what].items():
            allowed = 1e-10 * max(value.abs().max(), 1e-6 * total)
            worst = (ours[what][name] - value).abs().max()
            assert worst <= allowed, f"step {step}, {what}, {name}: {worst} > {allowed}"
    for what, own in found.items():
        assert abs(own - torchs[what]) <= 1e-10 * abs(torchs[what]), f"step {step}, {what}: {own} and {torchs[what]}"


def as_close(step, ours, theirs, found, exact, losses):
    """Gradients of a step from the same weights, beside those without rounding."""
    expected = flat(exact["gradients"])
    own, rounding = ((flat(gradients) - expected).norm().item() for gradients in (ours["gradients"], theirs["gradients"]))
    assert own <= 2 * rounding, f"step {step}, gradients: off by {own}, torch by {rounding}"
    off = abs(found["norm"] - expected.norm().item())
    assert off <= 2 * rounding, f"step {step}, norm: off by {off}, torch's gradients by {rounding}"
    off, of_losses = abs(found["loss"] - exact["losses"].mean().item()), (losses - exact["losses"]).square().mean().sqrt().item()
    assert off <= 2 * of_losses, f"step {step}, loss: off by {off}, torch's losses by {of_losses}"
    return own / rounding


def updated(setting, weights, gradients, norms):
    """Holds the executor's weights against torch's updates by its gradients; the largest part of what is allowed."""
    decoder, unit, most = loaded(setting, weights[0], torch.float32), 2.0**-24, 0.0
    optimizer = setting.optimizer_of(decoder)
    for step, (of_step, norm) in enumerate(zip(gradients, norms), 1):
        with torch.no_grad():
            for name, parameter in decoder.named_parameters():
                parameter.copy_(weights[step - 1][name])
                parameter.grad = of_step[name].float() * min(1.0, setting.clip / norm)
        optimizer.step()
        for name, parameter in decoder.named_parameters():
            off = (weights[step][name] - parameter.detach().double()).abs()
            part = (off / (32 * unit * setting.lr + 4 * unit * weights[step][name].abs())).max().item()
            assert part <= 1.0, f"step {step}, update of {name}: {part} of what is allowed"
            most = max(most, part)
    return most


class Run:
    """What a run has left, and what is known of it besides."""

    def __init__(self, folder, figures):
        with open(f"{folder}/plan.json") as file:
            self.setting = Setting(json.load(file))
        self.figures, self.steps = json.loads(figures), range(1, self.setting.steps + 1)
        name = lambda what, step, rank: f"{folder}/dump/{what}-{step:05}.rank-{rank:05}"
        read = lambda what, step: [placed(name(what, step, rank), self.setting.model) for rank in range(self.setting.world)]
        self.weights = [read("weights", step) for step in (0, *self.steps)]
        self.gradients = [None, *(read("gradients", step) for step in self.steps)]
        self.whole_weights = [wholes_of(of_step) for of_step in self.weights]


def compare(run, torchs):
    """Holds a run against what torch's ranks have given."""
    setting, figures, weights = run.setting, run.figures, run.whole_weights
    dumps = {"weights": run.weights, "gradients": run.gradients}
    for rank, (own, other) in enumerate(zip(run.weights[0], torchs)):
        same_places(f"rank {rank}", own, other["start"])
        assert all(torch.equal(own[name][~own[name].isnan()], value[~value.isnan()]) for name, value in other["start"].items())
        assert figures["bytes"][rank] == other["bytes"], f"rank {rank} keeps {figures['bytes'][rank]} bytes, in torch {other['bytes']}"
    gradients, off = [], []
    for step in run.steps:
        there = [of_rank["steps"][step - 1] for of_rank in torchs]
        for what in ("gradients", "weights"):
            for rank, (own, other) in enumerate(zip(dumps[what][step], there)):
                same_places(f"step {step}, {what} of rank {rank}", own, other[what])
        theirs = {what: wholes_of([of_rank[what] for of_rank in there]) for what in ("gradients", "weights")}
        ours = {"weights": weights[step], "gradients": wholes_of(dumps["gradients"][step])}
        gradients.append(ours["gradients"])
        losses = torch.cat([of_rank["losses"] for of_rank in there])
        found = {"loss": figures["losses"][step - 1], "norm": figures["norms"][step - 1]}
        if setting.rounds:
            exact = without_rounding(setting, step, weights[step - 1])
            off.append(as_close(step, ours, theirs, found, exact, losses))
        else:
            equal(step, ours, theirs, found, {"loss": losses.mean().item(), "norm": there[0]["norm"]})
    said = "are equal"
    if setting.rounds:
        part = updated(setting, weights, gradients, figures["norms"])
        said += f" but for rounding: gradients {max(off):.2f} of torch's, updates {part:.2f} of what is allowed"
    print(f"{setting.steps} steps and {len(weights[0])} parameters on {setting.world} ranks {said}")


def main():
    runs = [Run(folder, figures) for folder, figures in zip(sys.argv[1::2], sys.argv[2::2])]
    for world in sorted({run.setting.world for run in runs}):
        of_world = [run for run in runs if run.setting.world == world]
        works = [by_torch(run.setting, run.whole_weights) for run in of_world]
        for run, torchs in zip(of_world, on_ranks(world, works)):
            compare(run, torchs)


if __name__ == "__main__":
    main()
