"""Tensor-parallel plans that transformers has for the model types that planner imports, as JSON.

They are read from the source: of configuration classes the inner model's plan, of modeling files the plan of the class
with the output layer.
"""

import ast
import json
import os
import re

import transformers

TYPES = [
    "arcee", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4", "dots1", "ernie4_5", "exaone4", "falcon_h1",
    "gemma", "gemma2", "gemma3_text", "gemma3n_text", "gemma4_text", "glm", "glm4", "glm4_moe", "glm4_moe_lite",
    "glm4v_moe_text", "glm_moe_dsa", "gpt2", "gpt_neox", "gpt_oss", "granite", "hunyuan_v1_dense", "kimi_linear",
    "llama", "llama4_text", "minimax_m2", "minimax_m3_vl_text", "ministral", "ministral3", "mistral", "mixtral",
    "nemotron", "nemotron_h", "olmo2", "olmo3", "olmoe", "phi3", "qwen2", "qwen2_5_vl_text", "qwen2_moe",
    "qwen2_vl_text", "qwen3", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_moe", "qwen3_next", "qwen3_vl_moe_text",
    "qwen3_vl_text", "seed_oss", "smollm3", "starcoder2",
]


def literal(node):
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def assigned(body):
    for statement in body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name) and getattr(statement, "value", None) is not None:
                yield target.id, literal(statement.value)


def plans():
    models = os.path.join(os.path.dirname(transformers.__file__), "models")
    found = {}
    for family in sorted(os.listdir(models)):
        folder = os.path.join(models, family)
        if not os.path.isdir(folder):
            continue
        heads = {}
        for name in sorted(os.listdir(folder)):
            if name.startswith("modeling_") and name.endswith(".py"):
                text = open(os.path.join(folder, name), encoding="utf-8").read()
                for match in re.finditer(r"_tp_plan\s*=\s*(\{[^}]*\})", text):
                    plan = literal(ast.parse(match.group(1), mode="eval").body)
                    heads.update({key: style for key, style in (plan or {}).items() if key == "lm_head"})
        for name in sorted(os.listdir(folder)):
            if name.startswith("configuration_") and name.endswith(".py"):
                tree = ast.parse(open(os.path.join(folder, name), encoding="utf-8").read())
                for node in tree.body:
                    if isinstance(node, ast.ClassDef):
                        fields = dict(assigned(node.body))
                        kind, plan = fields.get("model_type"), fields.get("base_model_tp_plan")
                        if kind in TYPES and isinstance(plan, dict):
                            found[kind] = {"class": heads, "inner": plan}
    return found


print(json.dumps({"source": f"transformers {transformers.__version__}", "plans": plans()}, indent=1, sort_keys=True))
