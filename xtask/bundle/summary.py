"""The figures of a bundle's results, as lines.

usage: summary.py RESULTS SIZE
"""

import glob
import json
import os
import sys


def load(folder, name):
    with open(os.path.join(folder, name + ".json")) as file:
        return json.load(file)


def steps(folder, run):
    """Records of rank 0's steps: each line of a log is a checksum, a space and JSON."""
    for path in glob.glob(os.path.join(folder, "runs", run, "rank-00000.log")):
        for line in open(path):
            record = json.loads(line.split(" ", 1)[1])
            if record.get("event") == "step":
                yield record


def main(folder, size):
    found = {}
    for name in (f"{size}-one", f"{size}-shared"):
        run = load(folder, name)
        seconds = [step for step in steps(folder, run["run"])]
        later = sorted(seconds[len(seconds) // 3 :], key=lambda step: step["seconds"])
        middle = later[len(later) // 2]
        found[name] = middle["tokens"] / middle["seconds"]
        mfu = middle.get("mfu")
        print(
            f"shardplan {name}: {run['outcome']}, {found[name]:.0f} tokens/s, {middle['model_tflops']:.3g} model TFLOP/s"
            f" a rank, MFU {'not known here' if mfu is None else f'{100 * mfu:.1f}%'},"
            f" static {sum(middle['memory'][k] for k in ('weights_bytes', 'gradients_bytes', 'optimizer_bytes'))} bytes"
        )
    for mode in ("eager", "compile"):
        torch = load(folder, "baseline-" + mode)
        ratio = found[f"{size}-one"] / torch["tokens_per_second"]
        print(
            f"PyTorch {torch['torch']} {mode} on {torch['device']}: {torch['tokens_per_second']:.0f} tokens/s;"
            f" shardplan has {ratio:.2f} of it; allocated {torch['allocated_bytes']} bytes"
        )
    verified = load(folder, "verify")
    equal = "equal on every rank" if verified["static_bytes_equal"] else "not equal"
    print(f"verify: {verified['outcome']}, static bytes {equal}")


main(sys.argv[1], sys.argv[2])
