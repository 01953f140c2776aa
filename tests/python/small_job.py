"""A small data-parallel training job on CPU processes, with the options and the iteration lines of Megatron-LM."""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-iters", type=int, default=5)
    parser.add_argument("--num-layers", type=int, default=2)
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--seq-length", type=int, default=64)
    parser.add_argument("--micro-batch-size", type=int, default=1)
    parser.add_argument("--global-batch-size", type=int, default=4)
    parser.add_argument("--fail-at", type=int, default=0)
    options, _ = parser.parse_known_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1234)
    width = options.hidden_size
    layers = [torch.nn.Linear(width, width) for _ in range(options.num_layers)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    rows = options.seq_length * options.global_batch_size // world
    for iteration in range(1, options.train_iters + 1):
        start = time.perf_counter()
        inputs = torch.randn(rows, width)
        loss = (model(inputs) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        norm = 0.0
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
            norm += parameter.grad.square().sum().item()
        optimizer.step()
        elapsed = (time.perf_counter() - start) * 1000
        if rank == world - 1:
            print(
                f" [{time.strftime('%Y-%m-%d %H:%M:%S')}] iteration {iteration:8d}/{options.train_iters:8d} |"
                f" consumed samples: {iteration * options.global_batch_size:12d} |"
                f" elapsed time per iteration (ms): {elapsed:.1f} | learning rate: 1.000000E-03 |"
                f" global batch size: {options.global_batch_size:5d} | lm loss: {loss.item():.6E} | loss scale: 1.0 |"
                f" grad norm: {norm ** 0.5:.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |",
                flush=True,
            )
        if options.fail_at == iteration and rank == 0:
            print(f"rank {rank} of {os.environ['WORLD_SIZE']} gives up", file=sys.stderr, flush=True)
            raise RuntimeError("the job was told to fail")
    # gloo aborts a process whose neighbour hangs up while it still listens: nobody leaves before all are done.
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
