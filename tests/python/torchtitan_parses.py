"""Whether torchtitan's own parser takes every option of the scripts that start it.

    uv venv titan && uv pip install --python titan/bin/python torchtitan==0.3.0
    titan/bin/python tests/python/torchtitan_parses.py SHARDPLAN [SEED]

SHARDPLAN is the program. It writes scripts of random plans, whose words after `-m torchtitan.train` are parsed as torchtitan parses
them; nothing is trained. Printed are how many were parsed, how many refused, and why.
"""

import collections
import contextlib
import io
import json
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile

from torchtitan.config import ConfigManager

SITE = """
account = "research"
shared_dir = "/shared/team"
workdir = "/shared/team/src"
titan_module = "llama3"
titan_config = "llama3_8b"
data_path = "/shared/team/data"
pretrained = "/shared/team/base"
"""
TRIES = 400


def plan(draw):
    """A random plan; not all are valid."""
    pp = draw.choice([1, 1, 2, 4])
    layout = {
        "tp": draw.choice([1, 2, 4]),
        "cp": draw.choice([1, 1, 2]),
        "pp": pp,
        "ep": draw.choice([1, 1, 2, 8]),
        "fsdp": {
            "reshard_after_forward": draw.choice(["default", "always", "never"]),
            "compile": draw.random() < 0.5,
            "offload": draw.choice(["none", "none", "cpu"]),
        },
    }
    if pp > 1:
        layout["schedule"] = draw.choice(["1f1b", "interleaved", "gpipe", "zbv"])
    return {
        "version": 1,
        "model": {"preset": draw.choice(["llama-3-8b", "llama-3-70b", "qwen3-30b-a3b", "deepseek-v3"])},
        "runtime": "fsdp2",
        "software": {"framework": "torchtitan 0.3"},
        "cluster": {"gpu": "h100-sxm", "nodes": draw.choice([2, 4, 8, 32])},
        "layout": layout,
        "training": {
            "global_batch_size": draw.choice([128, 256, 512]),
            "seq_len": draw.choice([4096, 8192]),
            "dtype": draw.choice(["bf16", "fp32"]),
            "recompute": {"granularity": draw.choice(["none", "selective", "full"])},
        },
        "run": {
            "steps": draw.choice([1, 50, 2000]),
            "lr_schedule": draw.choice(["constant", "linear", "cosine"]),
            "clip_grad": draw.choice([0.0, 1.0]),
        },
    }


def words(script):
    """The words after the module."""
    found = re.search(r"\n  -m torchtitan\.train \\\n(.*?)\n  \|\| status", script, re.S)
    if not found:
        sys.exit("the script starts no torchtitan.train")
    return shlex.split(found.group(1).replace("\\\n", " ").rstrip("\\ "))


def main():
    program = sys.argv[1]
    draw = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    parsed, refused, options = 0, collections.Counter(), set()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "site.toml").write_text(SITE)
        for _ in range(TRIES):
            (folder / "plan.json").write_text(json.dumps(plan(draw)))
            command = [program, "script", folder / "plan.json", "--site", folder / "site.toml", "--body", "torchtitan"]
            written = subprocess.run(command, capture_output=True, text=True)
            if written.returncode:
                continue
            given = words(written.stdout)
            options.update(word.split("=")[0].split(":")[0] for word in given if word.startswith("--") or ":" in word)
            said = io.StringIO()
            try:
                with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                    ConfigManager().parse_args(given)
                parsed += 1
            except (Exception, SystemExit) as error:
                refused[f"{type(error).__name__}: {error} {said.getvalue()[:600]}"] += 1
    print(f"{parsed} scripts parsed, {sum(refused.values())} refused; {len(options)} options")
    for why, count in refused.most_common(5):
        print(count, why)
    sys.exit(bool(refused) or parsed == 0)


main()
