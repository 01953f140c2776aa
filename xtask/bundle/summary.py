"""What a bundle's steps came to, and their figures, as lines. Whatever is missing or cut off costs its own line alone.

usage: summary.py RESULTS
"""

import glob
import json
import os
import sys


def load(path):
    with open(path) as file:
        return json.load(file)


def records(folder, plan):
    """Records of rank 0 in the newest run of a plan, as far as they were written: each line of a log is a checksum, a
    space and JSON."""
    logs = glob.glob(os.path.join(folder, "runs", plan, "*", "rank-00000.log"))
    found = []
    if logs:
        with open(max(logs, key=os.path.getmtime)) as file:
            for line in file:
                try:
                    found.append(json.loads(line.split(" ", 1)[1]))
                except (ValueError, IndexError):
                    break
    return found


def started(found):
    """Seconds from a rank's joining to the end of its allocation."""
    at = {}
    for record in found:
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
        yield f"  {kind:<15} measured {found:>14} predicted {foreseen:>14} bytes {off}"
    time = estimate.get("time")
    if time:
        seconds = time["step_seconds"]
        yield (
            f"  {'step':<15} measured {step['seconds']:.4f} predicted {seconds:.4f} s"
            f" {100 * (step['seconds'] / seconds - 1):+.1f}%; phases {json.dumps(step['phases'])}"
        )


def middle_step(folder, plan):
    """The median of the later two thirds of a run's steps, and how many there are."""
    seconds = [record for record in records(folder, plan) if record.get("event") == "step"]
    if not seconds:
        raise ValueError("it has no step")
    later = sorted(seconds[len(seconds) // 3 :], key=lambda step: step["seconds"])
    return later[len(later) // 2], len(seconds)


def of_run(folder, plan):
    middle, count = middle_step(folder, plan)
    rate = middle["tokens"] / middle["seconds"]
    mfu = middle.get("mfu")
    yield (
        f"shardplan {plan}: {count} steps, {rate:.0f} tokens/s, {middle['model_tflops']:.3g} model TFLOP/s a rank,"
        f" MFU {'not known here' if mfu is None else f'{100 * mfu:.1f}%'},"
        f" {started(records(folder, plan)):.1f} s until its state was there, loss {middle['loss']:.4f}"
    )
    path = os.path.join(folder, f"estimate-{plan}.json")
    if os.path.exists(path):
        yield from predicted(load(path), middle)


def of_torch(folder, mode, plan):
    torch = load(os.path.join(folder, f"{mode}-{plan}.json"))
    line = f"PyTorch {torch['torch']} {mode} {plan} on {torch['device']}: {torch['tokens_per_second']:.0f} tokens/s"
    try:
        middle, _ = middle_step(folder, plan)
        ratio = middle["tokens"] / middle["seconds"] / torch["tokens_per_second"]
        line += f"; shardplan has {ratio:.2f} of it"
    except (ValueError, KeyError):
        line += "; shardplan has no steps to compare"
    yield f"{line}; peak {torch['peak_bytes']} bytes"


def of_kernels(folder):
    kernels = load(os.path.join(folder, "kernels.json"))
    off = [row for row in kernels["kernels"] if not row["within"]]
    yield f"kernels on {kernels['device']}: {len(kernels['kernels']) - len(off)} within their bounds, {len(off)} not"
    for row in off:
        yield f"  {row['kernel']}, {row['type']}: {row['error']}"


def of_nccl(folder):
    found = load(os.path.join(folder, "nccl.json"))
    off = [row for row in found["checks"] if not row["within"]]
    revokes = "revokes" if found["revokes"] else "can't revoke"
    yield (
        f"NCCL {found['nccl']} ({revokes}) in a world of one on {found['device']}:"
        f" {len(found['checks']) - len(off)} as expected, {len(off)} not"
    )
    for row in off:
        yield f"  {row['check']}: {row.get('error', 'another result')}"


def of_verify(folder):
    verified = load(os.path.join(folder, "verify.json"))
    equal = "equal on every rank" if verified["static_bytes_equal"] else "not equal"
    yield f"verify: {verified['outcome']}, static bytes {equal}"


def figures(folder, name):
    """Lines of a step's figures; none for most."""
    kind, _, plan = name.partition("-")
    if kind == "run":
        return of_run(folder, plan)
    if kind in ("eager", "compile"):
        return of_torch(folder, kind, plan)
    return {"kernels": of_kernels, "nccl": of_nccl, "verify": of_verify}.get(name, lambda _: ())(folder)


def lines(folder):
    """The whole summary."""
    steps = load(os.path.join(folder, "steps.json"))["steps"]
    states = [step["state"] for step in steps]
    counted = {state: states.count(state) for state in sorted(set(states))}
    whole = "all steps passed" if set(states) == {"passed"} else "NOT all steps passed"
    yield f"{whole}: " + ", ".join(f"{count} {state}" for state, count in counted.items())
    for step in steps:
        seconds = f" {step['seconds']:.1f} s of {step['limit']:.0f}" if "seconds" in step else ""
        code = f", exit status {step['exit']}" if step.get("exit") else ""
        yield f"  {step['name']:<22} {step['state']}{seconds}{code}"
        for line in step.get("last_lines", ()):
            yield f"      | {line[:400]}"
    open_still = [step["name"] for step in steps if step["state"] != "passed"]
    if open_still:
        yield f"to run these again: ./run.sh {' '.join(open_still)}"
    for step in steps:
        if step["state"] == "not reached":
            continue
        try:
            yield from figures(folder, step["name"])
        except Exception as error:
            if step["state"] == "passed":
                yield f"{step['name']}: its figures can't be read: {type(error).__name__}: {error}"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print("\n".join(lines(sys.argv[1])))
