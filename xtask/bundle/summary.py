"""The figures of a bundle's results, as lines.

usage: summary.py RESULTS NAME...
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


def started(folder, run):
    """Seconds from a rank's joining to the end of its allocation."""
    at = {}
    with open(os.path.join(folder, "runs", run, "rank-00000.log")) as file:
        for line in file:
            record = json.loads(line.split(" ", 1)[1])
            at.setdefault(record.get("event"), record["unix_ms"])
    return (at["allocated"] - at["joined"]) / 1000


def predicted(estimate, step):
    """Measured beside predicted: bytes by category of the first rank, and seconds."""
    if not estimate.get("memory"):
        return
    rank = next(c for c in estimate["memory"]["rank_classes"] if c["example_rank"] == 0)
    kinds = ("weights", "gradients", "optimizer", "activations", "transient", "peak_allocated", "peak_reserved")
    for kind in kinds:
        foreseen, found = rank[kind + "_bytes"], step["memory"][kind + "_bytes"]
        off = f"{100 * (found / foreseen - 1):+.2f}%" if foreseen else ""
        print(f"  {kind:<15} measured {found:>14} predicted {foreseen:>14} bytes {off}")
    time = estimate.get("time")
    if time:
        seconds = time["step_seconds"]
        print(
            f"  {'step':<15} measured {step['seconds']:.4f} predicted {seconds:.4f} s"
            f" {100 * (step['seconds'] / seconds - 1):+.1f}%; phases {json.dumps(step['phases'])}"
        )


def main(folder, names):
    for name in names:
        run = load(folder, name)
        seconds = list(steps(folder, run["run"]))
        later = sorted(seconds[len(seconds) // 3 :], key=lambda step: step["seconds"])
        middle = later[len(later) // 2]
        rate = middle["tokens"] / middle["seconds"]
        mfu = middle.get("mfu")
        print(
            f"shardplan {name}: {run['outcome']}, {rate:.0f} tokens/s, {middle['model_tflops']:.3g} model TFLOP/s"
            f" a rank, MFU {'not known here' if mfu is None else f'{100 * mfu:.1f}%'},"
            f" {started(folder, run['run']):.1f} s until its state was there, loss {middle['loss']:.4f}"
        )
        predicted(load(folder, name + ".estimate"), middle)
        for mode in ("eager", "compile"):
            if os.path.exists(os.path.join(folder, f"{name}.{mode}.json")):
                torch = load(folder, f"{name}.{mode}")
                ratio = rate / torch["tokens_per_second"]
                print(
                    f"  PyTorch {torch['torch']} {mode} on {torch['device']}: {torch['tokens_per_second']:.0f} tokens/s;"
                    f" shardplan has {ratio:.2f} of it; peak {torch['peak_bytes']} bytes"
                )
    verified = load(folder, "verify")
    equal = "equal on every rank" if verified["static_bytes_equal"] else "not equal"
    print(f"verify: {verified['outcome']}, static bytes {equal}")


main(sys.argv[1], sys.argv[2:])
