# /// script
# [tool.runspec]
# name = "tests/train"
#
# [tool.runspec.run]
# launch = "torchrun"
#
# [tool.runspec.resources]
# gpus_per_node = 2
#
# [tool.runspec.env]
# OMP_NUM_THREADS = "1"
# ///
"""Adds up the ranks' numbers, and then does what its first argument says."""

import os
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
total = torch.tensor([rank + 1.0])
dist.all_reduce(total)
what = sys.argv[1] if len(sys.argv) > 1 else "end"
# One write for a line, so that lines of several ranks do not mix.
sys.stdout.write(f"rank {rank} of {world}: {total.item():.0f} {' '.join(sys.argv[1:])}\n")
sys.stdout.flush()
if what == "import":
    import ours

    sys.stdout.write(f"rank {rank}: {ours.NAME} in {os.environ['VIRTUAL_ENV']}\n")
if what == "fail" and rank == world - 1:
    # At once: gloo's threads are still there, and an orderly end may abort on them.
    os._exit(17)
if what == "wait":
    time.sleep(600)
# gloo aborts a process whose neighbour hangs up while it still listens: nobody leaves before all are done.
dist.barrier()
time.sleep(0.3)
dist.destroy_process_group()
