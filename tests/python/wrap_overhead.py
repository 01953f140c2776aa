"""What `shardplan wrap` costs a step: the same small job alone and wrapped, in turns, by its own clock.

    python tests/python/wrap_overhead.py path/to/shardplan [--rounds 5] [--steps 200] [--processes 2]

The Python that runs this must have torch. Prints the median step of each round and both medians over all rounds.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

JOB = pathlib.Path(__file__).with_name("small_job.py")
STEP = re.compile(r"elapsed time per iteration \(ms\): ([0-9.]+)")


def steps_of(command, folder):
    printed = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True)
    # The first steps allocate and open connections.
    return [float(found) for found in STEP.findall(printed.stdout)][10:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("shardplan", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    job = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={options.processes}"]
    job += [str(JOB), f"--train-iters={options.steps}"]
    wrapped = [str(options.shardplan.resolve()), "wrap", "--", *job]
    seen = {"alone": [], "wrapped": []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            # Who goes first changes, so that a slow minute hits both.
            order = [("alone", job), ("wrapped", wrapped)]
            for name, command in order if number % 2 == 0 else reversed(order):
                steps = steps_of(command, folder)
                seen[name].append(statistics.median(steps))
                print(f"round {number + 1} {name:8} median {seen[name][-1]:.2f} ms of {len(steps)} steps", flush=True)
    medians = {name: statistics.median(rounds) for name, rounds in seen.items()}
    spread = max(seen["alone"]) - min(seen["alone"])
    print(f"alone {medians['alone']:.2f} ms, wrapped {medians['wrapped']:.2f} ms,", end=" ")
    print(f"difference {medians['wrapped'] - medians['alone']:+.2f} ms; rounds alone differ by {spread:.2f} ms")


if __name__ == "__main__":
    main()
