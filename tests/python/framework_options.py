"""The settings that a framework takes, read from the dataclasses of its sources: the tables in planner/frameworks/tests/options.

    framework_options.py TABLE FOLDER [FOLDER]

TABLE is torchtitan, torchtitan-toml, automodel or bridge. FOLDER is where the package lies; bridge takes the folder of
Megatron Bridge's sources and that of the Megatron-LM that it pins. Nothing is imported or run.
"""

import ast
import json
import pathlib
import sys

PLAIN = {"int": "int", "float": "float", "bool": "bool", "str": "text", "None": "null"}


def kinds(node, aliases=None):
    """What a field takes, by its annotation: int, float, bool, text, null, a 'choice', list, or any."""
    aliases = aliases or {}
    if isinstance(node, ast.Constant):
        if node.value is None:
            return ["null"]
        return kinds(ast.parse(node.value, mode="eval").body, aliases)
    if isinstance(node, ast.Name):
        return kinds(aliases[node.id], aliases) if node.id in aliases else [PLAIN.get(node.id, "any")]
    if isinstance(node, ast.BinOp):
        return kinds(node.left, aliases) + kinds(node.right, aliases)
    if isinstance(node, ast.Subscript):
        of = ast.unparse(node.value).split(".")[-1]
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if of == "Literal":
            return ["null" if choice.value is None else repr(str(choice.value)) for choice in inner]
        if of == "Optional":
            return kinds(inner[0], aliases) + ["null"]
        if of == "Union":
            return [kind for one in inner for kind in kinds(one, aliases)]
        if of in ("list", "List"):
            return ["list"]
    return ["any"]


def fields(path, name):
    """The fields of a dataclass, which may be nested: `Outer.Config`."""
    body = ast.parse(pathlib.Path(path).read_text()).body
    aliases = {
        node.targets[0].id: node.value
        for node in body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Subscript)
        and ast.unparse(node.value.value) in ("Union", "Optional", "Literal")
    }
    for part in name.split("."):
        found = [node for node in body if isinstance(node, ast.ClassDef) and node.name == part]
        if not found:
            sys.exit(f"{path} has no class {name}")
        body = found[0].body
    return {
        node.target.id: " or ".join(dict.fromkeys(kinds(node.annotation, aliases)))
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def registered(path):
    """Names of functions that a decorator registers."""
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    return [f.name for f in functions if any(ast.unparse(d).startswith("register") for d in f.decorator_list)]


def torchtitan(root):
    config = root / "config/configs.py"
    return {
        "parallelism": [(config, "ParallelismConfig")],
        "training": [(config, "TrainingConfig")],
        "compile": [(config, "CompileConfig")],
        "debug": [(config, "DebugConfig")],
        "lr_scheduler": [(root / "components/optimizer/lr_scheduler.py", "LRSchedulersContainer.Config")],
        "checkpoint": [
            (root / "components/checkpointer/dcp.py", "CheckpointManager.Config"),
            (root / "components/checkpointer/base.py", "BaseCheckpointManager.Config"),
        ],
        "": [(root / "trainer.py", "Trainer.Config")],
    }


def torchtitan_toml(root):
    config = root / "config/job_config.py"
    sections = {"parallelism": "Parallelism", "training": "Training", "compile": "Compile", "debug": "Debug"}
    sections |= {"lr_scheduler": "LRScheduler", "optimizer": "Optimizer", "job": "Job"}
    sections |= {"activation_checkpoint": "ActivationCheckpoint", "checkpoint": "Checkpoint"}
    return {section: [(config, name)] for section, name in sections.items()}


def automodel(root):
    parts = root / "components"
    strategies = parts / "distributed/config.py"
    return {
        "distributed": [(parts / "distributed/mesh.py", "ParallelismSizes"), (strategies, "FSDP2Config")],
        # The same section under the other strategy.
        "distributed:megatron_fsdp": [
            (parts / "distributed/mesh.py", "ParallelismSizes"),
            (strategies, "MegatronFSDPConfig"),
        ],
        "distributed.pipeline": [(parts / "distributed/pipelining/config.py", "PipelineConfig")],
        "step_scheduler": [(parts / "training/step_scheduler.py", "StepSchedulerConfig")],
        "lr_scheduler": [(parts / "optim/optimizer.py", "LRSchedulerConfig")],
        "checkpoint": [(parts / "checkpoint/config.py", "CheckpointingConfig")],
    }


def bridge(root, megatron):
    core, training = megatron / "megatron/core", megatron / "megatron/training/config"
    ours = root / "src/megatron/bridge"
    config = ours / "training/config.py"

    def above(name):
        """A class of Megatron-LM's training configuration, wherever it stands."""
        for path in sorted(training.glob("*.py")):
            if any(isinstance(n, ast.ClassDef) and n.name == name for n in ast.parse(path.read_text()).body):
                return (path, name)
        sys.exit(f"{training} has no class {name}")

    return {
        "": [(config, "ConfigContainer")],
        "model": [
            (ours / "models/gpt_provider.py", "GPTModelProvider"),
            (ours / "models/transformer_config.py", "TransformerConfig"),
            (core / "transformer/transformer_config.py", "TransformerConfig"),
            (core / "model_parallel_config.py", "ModelParallelConfig"),
        ],
        "optimizer": [(config, "OptimizerConfig"), (core / "optimizer/optimizer_config.py", "OptimizerConfig")],
        "ddp": [
            (config, "DistributedDataParallelConfig"),
            (core / "distributed/distributed_data_parallel_config.py", "DistributedDataParallelConfig"),
        ],
        "train": [(config, "TrainingConfig"), above("TrainingConfig")],
        "scheduler": [(config, "SchedulerConfig"), above("SchedulerConfig")],
        "checkpoint": [(config, "CheckpointConfig"), above("CheckpointConfig")],
        "rng": [above("RNGConfig")],
        "mixed_precision": [(ours / "training/mixed_precision.py", "MixedPrecisionConfig")],
        "dataset": [
            (config, "GPTDatasetConfig"),
            (core / "datasets/gpt_dataset.py", "GPTDatasetConfig"),
            (core / "datasets/blended_megatron_dataset_config.py", "BlendedMegatronDatasetConfig"),
        ],
    }


def main():
    table, *folders = sys.argv[1:]
    sections = globals()[table.replace("-", "_")](*map(pathlib.Path, folders))
    options = {}
    for section, classes in sections.items():
        # A class stands before those that it builds on.
        for path, name in reversed(classes):
            for field, kind in fields(path, name).items():
                options[f"{section}.{field}" if section else field] = kind
    if table == "bridge":
        names = registered(pathlib.Path(folders[0]) / "src/megatron/bridge/training/mixed_precision.py")
        options["mixed_precision"] = " or ".join(map(repr, names)) + " or null"
    print(json.dumps(options, indent=1, sort_keys=True))


main()
