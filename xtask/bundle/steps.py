"""The steps of a bundle: each with a limit of its own, and none that ends the others.

usage: steps.py [--small] [--list] [STEP...]
"""

import ctypes
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import summary

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.environ.get("OUT") or os.path.join(HERE, "results")
# A step is not begun with less left of the budget.
LEAST_SECONDS = 5
# From asking a step to end to ending it.
GRACE_SECONDS = 5
SHARDPLAN = os.path.join(HERE, "bin", "shardplan")
RANK = os.path.join(HERE, "bin", "shardplan-rank")


@dataclass
class Step:
    """A program, and the most seconds that it may take."""

    name: str
    limit: float
    command: list
    # The plan of the bundle that it is given.
    plan: str = ""
    # Not among all steps: it runs where it is named.
    named_only: bool = False


def of_plan(name):
    return os.path.join(OUT, "plans", name + ".json")


def estimate(plan):
    return Step(f"estimate-{plan}", 60, [SHARDPLAN, "estimate", of_plan(plan), "--json"], plan)


def run(plan, limit):
    runs = os.path.join(OUT, "runs", plan)
    command = [SHARDPLAN, "run", of_plan(plan), "--json", "--runs", runs, "--ranks-per-gpu", "4"]
    return Step(f"run-{plan}", limit, command, plan)


def torch(plan, mode, limit):
    command = [sys.executable, os.path.join(HERE, "baseline.py"), of_plan(plan), mode]
    return Step(f"{mode}-{plan}", limit, command, plan)


def nccl(small):
    """NCCL in a world of one: with models for a CPU only with a library in its place."""
    library = os.environ.get("NCCL_LIBRARY")
    command = [RANK, "--check-nccl", *(["--nccl-library", library] if library else [])]
    return Step("nccl", 120, command, named_only=small and not library)


def steps(small):
    """All steps, the most valuable first."""
    size = "small" if small else "gpu"
    verify = [SHARDPLAN, "verify", of_plan("verify"), "--json", "--ranks-per-gpu", "4"]
    verify += ["--runs", os.path.join(OUT, "runs", "verify")]
    calibrate = [SHARDPLAN, "calibrate", "--check", "--ranks", "1", "--rounds", os.environ.get("ROUNDS") or "3"]
    calibrate += ["--output", os.path.join(OUT, "profile.json"), "--json"]
    listed = [
        Step("doctor", 60, [SHARDPLAN, "doctor", "--json"]),
        Step("kernels", 120, [RANK, "--check-kernels"]),
        estimate("small-one"),
        run("small-one", 90),
        nccl(small),
        estimate(f"{size}-one"),
        run(f"{size}-one", 120),
        torch(f"{size}-one", "eager", 90),
        run(f"{size}-shared", 90),
        Step("verify", 120, verify, "verify"),
        torch(f"{size}-one", "compile", 180),
    ]
    if small:
        listed = list({step.name: step for step in listed}.values())
    else:
        for plan in ("gpu-slice", "gpu-mixture"):
            listed += [estimate(plan), run(plan, 120)]
        listed += [torch("gpu-slice", "eager", 90), torch("gpu-slice", "compile", 180)]
    return [*listed, Step("calibrate", 1800, calibrate, named_only=True)]


class Ended(Exception):
    """Somebody asks for an end."""


class Recorder:
    """What is known of each step, on disk as soon as it is."""

    def __init__(self, small):
        self.small = small
        self.steps = {}
        path = os.path.join(OUT, "steps.json")
        if os.path.exists(path):
            try:
                self.steps = {step["name"]: step for step in summary.load(path)["steps"]}
            except (OSError, ValueError, KeyError):
                os.replace(path, path + ".unreadable")

    def set(self, name, **known):
        self.steps[name] = {"name": name, **known}
        self.write()

    def write(self):
        keep("steps.json", json.dumps({"small": self.small, "steps": list(self.steps.values())}, indent=1))
        keep("summary.txt", "".join(line + "\n" for line in summary.lines(OUT)))


def keep(name, text):
    """Writes a file of the results whole, or leaves the one that is there."""
    path = os.path.join(OUT, name)
    with open(path + ".new", "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def environment():
    """What programs of the bundle need to find torch, without importing it here."""
    lib = os.path.join(os.path.dirname(importlib.util.find_spec("torch").origin), "lib")
    paths = [lib, os.environ.get("LD_LIBRARY_PATH")]
    return {
        **os.environ,
        "SHARDPLAN_TORCH": sys.executable,
        "SHARDPLAN_RANK": RANK,
        "LD_LIBRARY_PATH": ":".join(path for path in paths if path),
    }


def make_plan(name):
    """A plan of the bundle for the GPU that doctor has seen; without one for the GPU that it names."""
    with open(os.path.join(HERE, "plans", name + ".json")) as file:
        plan = json.load(file)
    try:
        gpu = summary.load(os.path.join(OUT, "doctor.json"))["gpu"]
    except (OSError, ValueError, KeyError):
        gpu = None
    plan["cluster"]["gpu"] = gpu or plan["cluster"]["gpu"]
    os.makedirs(os.path.join(OUT, "plans"), exist_ok=True)
    with open(of_plan(name), "w") as file:
        json.dump(plan, file)


def end_with_parent():
    # PR_SET_PDEATHSIG: a step must not hold the GPU when nobody waits for it any more.
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def descendants(pid):
    """Processes below one: ranks have process groups of their own."""
    below, found = {}, []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                # The name of a program may have spaces and brackets.
                below.setdefault(int(file.read().rsplit(")", 1)[1].split()[1]), []).append(int(name))
        except OSError:
            pass
    waiting = [pid]
    while waiting:
        children = below.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def end(process):
    """Asks a step to end, and ends it and what it has started."""
    started = descendants(process.pid)
    process.terminate()
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        started += descendants(process.pid)
        process.kill()
    for pid in started:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


def last_lines(name):
    """The end of what a step said, or else of what it printed."""
    for kind in ("err", "json"):
        with open(os.path.join(OUT, f"{name}.{kind}"), "rb") as file:
            file.seek(max(0, os.path.getsize(file.name) - 4000))
            lines = file.read().decode(errors="replace").strip().splitlines()
        if lines:
            return lines[-20:]
    return []


def carry_out(step, limit, recorder):
    """Runs a step to its end or its limit, and records it. An end that is asked for is recorded, too, and handed on."""
    start = time.monotonic()
    known = {"limit": limit, "began_unix": time.time()}
    recorder.set(step.name, state="running", **known)
    process = None

    def over(state, code, said):
        seconds = round(time.monotonic() - start, 3)
        recorder.set(step.name, state=state, exit=code, seconds=seconds, last_lines=said, **known)
        print(f"{step.name}: {state} after {seconds:.1f} s", file=sys.stderr)

    try:
        if step.plan:
            make_plan(step.plan)
        with open(os.path.join(OUT, step.name + ".json"), "wb") as output:
            with open(os.path.join(OUT, step.name + ".err"), "wb") as messages:
                process = subprocess.Popen(
                    step.command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=messages,
                    env=environment(),
                    start_new_session=True,
                    preexec_fn=end_with_parent,
                )
        code = process.wait(limit)
        passed = code == 0
        over("passed" if passed else "failed", code, [] if passed else last_lines(step.name))
    except subprocess.TimeoutExpired:
        end(process)
        over("over its limit", None, last_lines(step.name))
    except Ended as ended:
        if process:
            end(process)
        over("interrupted", None, [str(ended)])
        raise
    except Exception as error:
        if process:
            end(process)
        over("failed", None, [f"{type(error).__name__}: {error}"])


def seconds_of(name, usual):
    text = os.environ.get(name) or str(usual)
    try:
        return float(text)
    except ValueError:
        sys.exit(f"{name} is {text!r} and must be seconds")


def main(arguments):
    options = [word for word in arguments if word.startswith("-")]
    names = [word for word in arguments if not word.startswith("-")]
    small = "--small" in options
    listed = steps(small)
    known = [step.name for step in listed]
    wrong = [word for word in options if word not in ("--small", "--list")] + [n for n in names if n not in known]
    if wrong:
        print(f"{wrong[0]} is no option or step. Steps: {' '.join(known)}", __doc__, sep="\n", file=sys.stderr)
        return 2
    if "--list" in options:
        print("\n".join(known))
        return 0
    budget, most = seconds_of("BUDGET", 540), seconds_of("LIMIT", float("inf"))
    chosen = [step for step in listed if (step.name in names if names else not step.named_only)]

    def asked(number, _frame):
        raise Ended(f"ended by {signal.Signals(number).name}")

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, asked)
    start = time.monotonic()
    os.makedirs(OUT, exist_ok=True)
    recorder = Recorder(small)
    for step in chosen:
        # What an earlier call has found stays until the step begins anew.
        recorder.steps.setdefault(step.name, {"name": step.name, "state": "not reached"})
    recorder.write()
    passed = 0
    try:
        for step in chosen:
            left = budget - (time.monotonic() - start)
            if left < LEAST_SECONDS:
                print(f"{step.name}: not reached, {max(left, 0):.0f} s left of {budget:.0f}", file=sys.stderr)
                continue
            carry_out(step, min(step.limit, most, left), recorder)
            passed += recorder.steps[step.name]["state"] == "passed"
    except Ended as ended:
        print(ended, file=sys.stderr)
    print("\n".join(summary.lines(OUT)))
    return 0 if passed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
