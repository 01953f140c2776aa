"""Names and shapes of the parameters of small models that transformers builds on the meta device, as JSON. Their sizes are
those of planner's data of totals.
"""

import json
import os

import torch
import transformers

NAMES = [
    "a small falcon_h1", "a small bamba", "a small gemma3n", "a small gemma4 with inputs of layers",
    "a small gemma4 with values that are keys, shared", "a small ministral3", "a small seed_oss",
]
TOTALS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../planner/tests/data/hf_totals.json")


def parameters(config):
    made = transformers.CONFIG_MAPPING[config.pop("model_type")](**config)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(made)
    return {name: list(value.shape) for name, value in model.named_parameters()}


rows = {row["name"]: row["config"] for row in json.load(open(TOTALS, encoding="utf-8"))["rows"]}
lines = [f"{json.dumps(name)}: {json.dumps(parameters(rows[name]), sort_keys=True)}" for name in NAMES]
print(f'{{"source": "transformers {transformers.__version__}", "models": {{')
print(",\n".join(lines))
print("}}")
