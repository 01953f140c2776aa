"""Names and shapes of the parameters of small models that transformers builds on the meta device, as JSON: those outside
the layers and those of each kind of layer.

Usage: hf_names.py FILE NAME..., where FILE is planner's data of totals and the names are of its rows.
"""

import json
import sys

import torch
import transformers

rows = {row["name"]: row["config"] for row in json.load(open(sys.argv[1], encoding="utf-8"))["rows"]}
found = {}
for name in sys.argv[2:]:
    config = dict(rows[name])
    made = transformers.CONFIG_MAPPING[config.pop("model_type")](**config)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(made)
    found[name] = {key: list(value.shape) for key, value in model.named_parameters()}
print("{", f'"source": "transformers {transformers.__version__}", "models": {{')
print(",\n".join(f"{json.dumps(name)}: {json.dumps(found[name], sort_keys=True)}" for name in sys.argv[2:]))
print("}}")
