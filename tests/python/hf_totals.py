"""Parameters of models that transformers builds on the meta device, as JSON: tied weights once, no multi-token-prediction
modules.

Usage: hf_totals.py FILE, where FILE is planner's data of totals or a list of {"name", "source", "config"}; prints the same
rows with their totals.
"""

import json
import sys

import torch
import transformers


def total(config):
    kind = config["model_type"]
    made = transformers.CONFIG_MAPPING[kind](**{key: value for key, value in config.items() if key != "model_type"})
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(made)
    model.tie_weights()
    return sum(parameter.numel() for parameter in {id(each): each for each in model.parameters()}.values())


rows = json.load(open(sys.argv[1], encoding="utf-8"))
rows = rows if isinstance(rows, list) else rows["rows"]
for row in rows:
    print(json.dumps({**{key: row[key] for key in ("name", "source", "config")}, "total": total(row["config"])}))
