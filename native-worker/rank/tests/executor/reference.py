"""A plain PyTorch model on the weights that shardplan-rank started from: loss and gradients of every step, and the
weights that torch's own AdamW makes of them.

Usage: reference.py (RUN_FOLDER LOSS,LOSS,...)... Shares no code with the executor: the samples are made anew, too.
"""

import json
import sys

import torch
import torch.nn.functional as F

MASK = (1 << 64) - 1


def mix(number):
    z = (number + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def sample(index, seed, words, length):
    key = mix(seed)
    for byte in b"data":
        key = mix(key ^ byte)
    start = mix(key ^ mix(index))
    word, tokens = mix(start) % words, []
    for step in range(length):
        dice = mix(start ^ mix(step + 1))
        word = mix(dice) % words if dice % 16 == 0 else (5 * word + 7) % words
        tokens.append(word)
    return tokens


def read(path):
    with open(path, "rb") as file:
        parts = json.loads(file.readline())
        values = torch.frombuffer(bytearray(file.read()), dtype=torch.float64)
    tensors, start = {}, 0
    for part in parts:
        assert part["shape"] == part["local_shape"], part
        count = torch.Size(part["shape"]).numel()
        tensors[part["name"]] = values[start : start + count].view(part["shape"]).clone()
        start += count
    assert start == values.numel()
    return tensors


def rms(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotate(x, theta, width):
    """x: [batch, heads, tokens, head_dim], in Hugging Face's manner."""
    inverse = 1.0 / theta ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.outer(torch.arange(x.shape[2], dtype=torch.float64), inverse)
    angles = torch.cat((angles, angles), -1)
    turned, rest = x[..., :width], x[..., width:]
    half = torch.cat((-turned[..., width // 2 :], turned[..., : width // 2]), -1)
    return torch.cat((turned * angles.cos() + half * angles.sin(), rest), -1)


def attention(x, get, a, theta, eps):
    b, s, h = x.shape
    heads, kv, d = a["heads"], a["kv_heads"], a["head_dim"]
    weight = get("qkv.weight")
    # The fused matrix holds, for each kv head, its query heads, then its key, then its value.
    q_weight = weight[:, : heads // kv].reshape(heads * d, h)
    k_weight, v_weight = (weight[:, heads // kv + i].reshape(kv * d, h) for i in (0, 1))
    q_bias = k_bias = v_bias = None
    if a.get("qkv_bias"):
        bias = get("qkv.bias")
        q_bias = bias[:, : heads // kv].reshape(-1)
        k_bias, v_bias = (bias[:, heads // kv + i].reshape(-1) for i in (0, 1))
    split = lambda y, n: y.view(b, s, n, d).transpose(1, 2)
    q = split(F.linear(x, q_weight, q_bias), heads)
    k = split(F.linear(x, k_weight, k_bias), kv)
    v = split(F.linear(x, v_weight, v_bias), kv)
    if a.get("qk_norm") == "per_head":
        q, k = rms(q, get("q_norm.weight"), eps), rms(k, get("k_norm.weight"), eps)
    width = a.get("rotary_dim") or d
    q, k = rotate(q, theta, width), rotate(k, theta, width)
    k, v = (t.repeat_interleave(heads // kv, 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) / d**0.5
    scores = scores.masked_fill(torch.ones(s, s, dtype=torch.bool).triu(1), float("-inf"))
    mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, s, heads * d)
    return F.linear(mixed, get("proj.weight").reshape(h, heads * d))


def loss_of(model, weights, inputs, targets):
    eps, theta = model.get("norm_eps", 1e-5), model.get("rope_theta", 10_000.0)
    x = weights["embedding.weight"][inputs]
    for layer in range(model["num_layers"]):
        get = lambda name, layer=layer: weights[f"layers.{layer}.{name}"]
        normed = rms(x, get("attention.norm.weight"), eps)
        x = x + attention(normed, lambda name: get(f"attention.{name}"), model["attention"], theta, eps)
        normed = rms(x, get("mlp.norm.weight"), eps)
        gate, up = get("mlp.fc1.weight")
        x = x + F.linear(F.silu(F.linear(normed, gate)) * F.linear(normed, up), get("mlp.fc2.weight"))
    x = rms(x, weights["final_norm.weight"], eps)
    head = weights["embedding.weight" if model.get("tied_embeddings") else "head.weight"]
    logits = F.linear(x, head[: model["vocab_size"]])
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def close(name, found, expected, floor):
    difference, allowed = (found - expected).norm(), 1e-10 * max(expected.norm(), floor)
    assert difference <= allowed, f"{name}: {difference} > {allowed}"


def check(folder, losses):
    plan = json.load(open(f"{folder}/plan.json"))
    model, training, run = plan["model"]["architecture"], plan["training"], plan["run"]
    dump = lambda what, step: read(f"{folder}/dump/{what}-{step:05}.rank-00000")
    weights = {name: tensor.requires_grad_() for name, tensor in dump("weights", 0).items()}
    plain = [w for name, w in weights.items() if name.endswith("norm.weight") or name.endswith("bias")]
    matrices = [w for w in weights.values() if not any(w is other for other in plain)]
    decay = run.get("weight_decay", 0.1)
    groups = [{"params": plain, "weight_decay": 0.0}, {"params": matrices, "weight_decay": decay}]
    said = training["optimizer"]
    if said["kind"] == "sgd":
        # Decoupled decay is none of torch's SGD.
        assert decay == 0.0
        optimizer = torch.optim.SGD(groups, lr=run["lr"], momentum=said.get("momentum", 0.9))
    else:
        betas = (said.get("beta1", 0.9), said.get("beta2", 0.95))
        optimizer = torch.optim.AdamW(groups, lr=run["lr"], betas=betas, eps=said.get("eps", 1e-8))
    words, length = min(model["vocab_size"], 256), training["seq_len"] + 1
    batch, seed = training["global_batch_size"], run.get("seed", 1234)
    for step, said in enumerate(losses, 1):
        tokens = torch.tensor([sample((step - 1) * batch + i, seed, words, length) for i in range(batch)])
        optimizer.zero_grad()
        loss = loss_of(model, weights, tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        assert abs(loss.item() - said) <= 1e-10 * said, (step, loss.item(), said)
        gradients = dump("gradients", step)
        total = torch.cat([gradient.flatten() for gradient in gradients.values()]).norm()
        for name, tensor in weights.items():
            close(f"step {step}, gradient of {name}", gradients[name], tensor.grad, 1e-6 * total)
            tensor.grad.mul_(min(1.0, run.get("clip_grad", 1.0) / total))
        optimizer.step()
        updated = dump("weights", step)
        for name, tensor in weights.items():
            close(f"step {step}, {name}", updated[name], tensor.detach(), 0.0)
    print(f"{len(losses)} losses, gradients and weights of {len(weights)} parameters are equal")


if __name__ == "__main__":
    for folder, losses in zip(sys.argv[1::2], sys.argv[2::2]):
        check(folder, [float(loss) for loss in losses.split(",")])
