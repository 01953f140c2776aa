"""Parameters of every causal language model type of transformers on the meta device, as JSON, a line for each type: of its
default configuration, of two scaled ones, of what is left of one when only its model_type is said, and with each key of it
changed alone.

Counted are elements of trained parameters, tied ones once: `outer` of everything beside layers, `layers` as runs of
[layers, mixer, experts, rest]. `same` are keys with which no value that was tried changes a size, `tried` those of which
every value that was tried is refused, and `keys` the others: key, value, total.

Usage: causal_types.py [TYPE ...] (all types without one)
"""

import copy
import dataclasses
import json
import os
import re
import sys
import types
import warnings

os.environ["TRANSFORMERS_VERBOSITY"] = "critical"
os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import PretrainedConfig  # noqa: E402
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES  # noqa: E402

transformers.logging.set_verbosity(50)
torch.set_num_threads(1)
# Sizes alone count.
transformers.PreTrainedModel.init_weights = lambda self: None
transformers.PreTrainedModel._init_weights = lambda self, module: None

# Keys of every configuration, and words and lists of names, none of which is a size.
COMMON = set(PretrainedConfig().to_dict()) | {
    "attribute_map", "model_type", "transformers_version", "auto_map", "dtype", "_attn_implementation", "vocab_file",
    "rope_parameters", "rope_scaling", "rope_theta", "tokenizer_class", "task_specific_params", "use_cache", "id2label",
    "label2id", "is_decoder", "is_encoder_decoder", "quantization_config", "base_model_tp_plan", "base_model_pp_plan",
}
# Types that are refused whatever their keys say: encoders, and decoders that attend to one.
SILENT = re.compile(r"_token_id|_token_index|drop|_eps$|epsilon|initializer|init_|_coef$|jitter|^extra_|^base_model_|^output_|_loss|^bos_|^eos_")
BESIDE = re.compile(r"^time_step_(min|max|floor|scale)|multiplier|_mup|magnitude|theta|chunk|_loss|lambda_std|a_log|linear_dt|alpha_factor|beta_factor|summary|scale_attn|variance|prefix_lm|rescale|residual_in|use_mamba|use_assoc|reduction|mem_eff|logits_to|cache_dtype")
REFUSED = set(
    """bart bert bert-generation big_bird bigbird_pegasus blenderbot blenderbot-small blt camembert data2vec-text electra
    ernie git marian mbart megatron-bert mllama moshi musicgen musicgen_melody mvp pegasus plbart prophetnet reformer
    rembert roberta roberta-prelayernorm roc_bert roformer trocr whisper xlm xlm-roberta xlm-roberta-xl xlnet xmod
    """.split()
)
LAYER = re.compile(r"\.(?:layers|h|blocks|block|layer)\.(\d+)\.(.*)$")
MIXER = re.compile(
    r"^(self_attn|self_att\.self_attention|attn|attention|self_attention|mixer(?!\.(?:gate|shared_experts|fc\d_latent_proj|up_proj|down_proj)\.)|mamba|linear_attn|conv|temporal_block"
    r"|multi_head_attention|mlstm_layer|rel_attn)\."
)
EXPERTS = re.compile(r"(^|\.)experts\.(?!bias)")


def named(cls, name):
    return (getattr(cls, "attribute_map", None) or {}).get(name, name)


def build(cls, keys):
    config = cls(**copy.deepcopy(keys))
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    return config, model


def count(model):
    outer, layers, seen = 0, {}, set()
    for name, parameter in model.named_parameters():
        if id(parameter) in seen or not parameter.requires_grad:
            continue
        seen.add(id(parameter))
        found = LAYER.search(name)
        if not found:
            outer += parameter.numel()
            continue
        sums = layers.setdefault(int(found.group(1)), [0, 0, 0])
        rest = found.group(2)
        kind = 1 if EXPERTS.search(rest) and "shared" not in rest else 0 if MIXER.match(rest) else 2
        sums[kind] += parameter.numel()
    runs = []
    for layer in sorted(layers):
        if runs and runs[-1][1:] == layers[layer]:
            runs[-1][0] += 1
        else:
            runs.append([1, *layers[layer]])
    total = outer + sum(run[0] * sum(run[1:]) for run in runs)
    return {"total": total, "outer": outer, "layers": runs}


def attempt(cls, keys):
    try:
        return count(build(cls, keys)[1])
    except BaseException as error:  # noqa: BLE001
        if isinstance(error, KeyboardInterrupt):
            raise
        return None


def plain(value):
    """As a config.json has it."""
    if isinstance(value, PretrainedConfig):
        return plain(value.to_dict())
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return str(value)
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


def defaults(cls):
    """What a class has for each of its keys, before any follows from others."""
    found = {}
    for parent in reversed(cls.__mro__):
        for field in getattr(parent, "__dataclass_fields__", {}).values():
            if field.name in COMMON or field.name.startswith("_"):
                continue
            value = field.default
            if value is dataclasses.MISSING:
                value = None if field.default_factory is dataclasses.MISSING else field.default_factory()
            found[field.name] = plain(value)
    return found


def usual_sizes(cls):
    """What the class has for keys that may be sizes: numbers, switches that are on, short lists of them."""
    def size(value):
        return isinstance(value, (int, float)) and value and not isinstance(value, str)

    def kept(value):
        return size(value) or isinstance(value, list) and 0 < len(value) < 9 and all(isinstance(item, int) for item in value)

    return {key: value for key, value in defaults(cls).items() if kept(value) and not SILENT.search(key) and not BESIDE.search(key)}


def scaled(cls, base, usual):
    """Smaller and otherwise proportioned configurations that the class accepts."""
    def size(name, default=None):
        key = named(cls, name)
        value = usual.get(key)
        return key, value if isinstance(value, int) and not isinstance(value, bool) else default

    variants = []
    for layers, vocabulary, factor in [(6, 1000, 1), (9, 5003, 2)]:
        keys = dict(base)
        wanted = [(named(cls, "num_hidden_layers"), layers), (named(cls, "vocab_size"), vocabulary)]
        if factor > 1:
            for name in ["hidden_size", "num_attention_heads", "num_key_value_heads"]:
                key, value = size(name)
                if value and value % factor == 0 and value > factor:
                    wanted.append((key, value // factor))
            for name in ["intermediate_size", "moe_intermediate_size"]:
                key, value = size(name)
                if value:
                    wanted.append((key, value + 64))
            for name in ["num_experts", "n_routed_experts", "num_local_experts"]:
                key, value = size(name)
                if value and value % 2 == 0:
                    wanted.append((key, value // 2))
        if attempt(cls, {**keys, **dict(wanted)}):
            keys.update(wanted)
        else:
            for key, value in wanted:
                if attempt(cls, {**keys, key: value}):
                    keys[key] = value
        variants.append(keys)
    return variants


def values(usual, kept):
    """Values to try for a key whose usual one is given."""
    if isinstance(usual, bool):
        return [not usual]
    if usual is None:
        return [64, 2, 16, 1, True, False] if not kept else [kept * 2, kept + 1]
    if isinstance(usual, int):
        return [usual * 2, usual + 1, usual // 2, usual + 2, usual + 16]
    if isinstance(usual, float):
        return [usual * 2, usual / 2]
    if isinstance(usual, list) and usual:
        if all(isinstance(item, int) for item in usual):
            return [usual[::-1], [usual[0] + 1, *usual[1:]], [item * 2 for item in usual]]
        return [usual[::-1], [usual[0]] * len(usual)]
    if isinstance(usual, list):
        return [[0], [1, 3]]
    if isinstance(usual, dict):
        return [
            {**usual, key: value}
            for key, inner in usual.items() if isinstance(inner, (int, bool)) for value in values(inner, None)[:2]
        ]
    return []


def changed(cls, small, usual, resolved):
    before = attempt(cls, small)
    row = {"keys": [], "same": [], "tried": []}
    for key in sorted(set(usual) - COMMON):
        if SILENT.search(key):
            row["same"].append(key)
            continue
        own = small.get(key, usual[key])
        kept = resolved.get(key)
        kept = kept if isinstance(kept, int) and not isinstance(kept, bool) else None
        if own is None and isinstance(resolved.get(key), list):
            own = resolved[key]
        same, moved = 0, []
        for value in values(own, kept):
            if value == own:
                continue
            now = attempt(cls, {**small, key: value})
            if now is None:
                continue
            if now["total"] == before["total"] and now["layers"] == before["layers"]:
                same += 1
            else:
                moved.append([key, value, now["total"]])
            if same > 1 or len(moved) > 1 or len(moved) == 1 and len(values(own, kept)) > 4:
                break
        if moved:
            row["keys"].extend(moved)
        elif same:
            row["same"].append(key)
        elif own is not None and values(own, kept):
            row["tried"].append(key)
    return row


def record(name):
    cls = transformers.CONFIG_MAPPING[name]
    row = {"type": name, "class": MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[name]}
    usual = defaults(cls)
    base = {}
    try:
        config, model = build(cls, base)
    except BaseException as error:  # noqa: BLE001
        # Some classes have no whole default: heads that are said make one.
        for more in [{"pad_token_id": None}, {"num_key_value_heads": 8}, {"head_dim": 128}, {"num_key_value_heads": 8, "head_dim": 128},
                     {"head_dim": 128, "num_key_value_heads": 8, "intermediate_size": 4096}, {"is_decoder": True}]:
            if attempt(cls, more):
                base = more
                break
        else:
            return {**row, "error": f"{type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"}
        config, model = build(cls, base)
    made = plain(config.to_dict())
    whole = {key: value for key, value in made.items() if key not in COMMON or key in ("tie_word_embeddings", "is_decoder")}
    row["default"] = {"config": whole, **count(model)}
    row["base"] = base
    inner = [whole.get(key) for key in ("text_config", "llm_config", "language_config")]
    if any(isinstance(value, dict) for value in inner):
        # A type of several modes: its text part is a type of its own, and is counted apart from the rest here.
        parameters = {id(value): (key, value.numel()) for key, value in reversed(list(model.named_parameters()))}
        of_text = [many for key, many in parameters.values() if "language_model" in key or key.startswith("lm_head")]
        if any("language_model" in key for key, _ in parameters.values()):
            row["default"]["text"] = sum(of_text)
        row["usual"] = usual_sizes(cls)
        return row
    if name in REFUSED:
        row["usual"] = usual_sizes(cls)
        return row
    small, other = scaled(cls, base, {**usual, **base})
    row["small"] = {"config": small, **(attempt(cls, small) or {})}
    row["other"] = {"config": other, **(attempt(cls, other) or {})}
    try:
        resolved = plain(build(cls, small)[0].to_dict())
        row.update(changed(cls, small, usual, resolved))
    except BaseException:  # noqa: BLE001
        pass
    row["usual"] = usual_sizes(cls)
    return row


if __name__ == "__main__":
    names = sys.argv[1:] or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    print(f'{{"source": "transformers {transformers.__version__}", "types": [', flush=True)
    for place, name in enumerate(names):
        end = "," if place + 1 < len(names) else ""
        print(json.dumps(record(name), separators=(",", ":"), sort_keys=True) + end, flush=True)
    print("]}")
