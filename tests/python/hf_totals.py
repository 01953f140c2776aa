"""Parameters of models that transformers builds on the meta device, as JSON: tied weights once, no multi-token-prediction
modules.

Usage: hf_totals.py FILE, where FILE is planner's data of totals or a list of {"name", "source", "config"}; prints the same
rows with their totals.
"""

import json
import sys

import torch
import transformers


# Released under a type of their own and built by the class of another.
BUILT_AS = {"kimi_k2": "deepseek_v3", "minimax_m3": "minimax_m3_vl_text"}


def total(config):
    # Rotation has no parameters, and its settings are kept in part.
    sizes = {key: value for key, value in config.items() if key not in ("model_type", "rope_parameters")}
    sizes.setdefault("pad_token_id", None)
    made = transformers.CONFIG_MAPPING[BUILT_AS.get(config["model_type"], config["model_type"])](**sizes)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(made)
    model.tie_weights()
    return sum(parameter.numel() for parameter in {id(each): each for each in model.parameters()}.values())


rows = json.load(open(sys.argv[1], encoding="utf-8"))
rows = rows if isinstance(rows, list) else rows["rows"]
for row in rows:
    print(json.dumps({**{key: row[key] for key in ("name", "source", "config")}, "total": total(row["config"])}))
