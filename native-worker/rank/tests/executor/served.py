"""Runs scripts, each in a fork of this process, which has imported what they need: importing takes seconds, most of them less.

Reads requests from stdin, a line of JSON each: `number`, `script`, `arguments`, `folder`. What the script prints stands in the
folder's `out` and `err`. When it has ended, a line says the request's number and the script's exit status.
"""

import gc
import json
import os
import runpy
import signal
import sys
import traceback

import torch
import torch._dynamo
import torch.distributed.checkpoint
import torch.distributed.fsdp
import transformers


def carry_out(request):
    """What a script of its own process would do; never comes back."""
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(os.path.join(request["folder"], name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        sys.argv = [request["script"], *request["arguments"]]
        sys.path.insert(0, os.path.dirname(request["script"]))
        runpy.run_path(request["script"], run_name="__main__")
        status = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main():
    # Threads don't survive a fork.
    torch.set_num_threads(1)
    # What is there by now is nobody's to collect: looking at its 300,000 objects takes a fork a quarter of a second.
    gc.collect()
    gc.freeze()
    # Those that wait below are nobody's to wait for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            request = json.loads(line)
            script = os.fork()
            if script == 0:
                carry_out(request)
            _, status = os.waitpid(script, 0)
            os.write(1, f"{request['number']} {os.waitstatus_to_exitcode(status)}\n".encode())
            os._exit(0)


# Looks for all models that there are, which takes a third of a second.
assert transformers.AutoModelForCausalLM
main()
