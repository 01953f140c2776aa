"""Stands in for the training programs of Megatron-LM, Megatron Bridge, NeMo Automodel and torchtitan.

It takes the options that they take and refuses any other, saves only when it is told to, leaves the files that they leave,
and goes on from them by their own options alone. A step takes a moment and is a line in a ledger.

TRAINER_OPTIONS  folder of the recorded options, a table for each framework
TRAINER_LEDGER   folder for the ledgers, a file for each job
TRAINER_STEP     seconds of a step
TRAINER_SAVE     seconds that saving takes
TRAINER_MINUTE   seconds of what a framework counts as a minute
TRAINER_DIES     ATTEMPT:STEP at which the last rank is killed
TRAINER_TORN     ATTEMPT:STEP at which the first rank is killed while it notes its newest checkpoint
"""

import json
import os
import pathlib
import shutil
import signal
import sys
import time

RANK = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))
WORLD = int(os.environ.get("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1")))
ATTEMPT = os.environ.get("SLURM_RESTART_COUNT", "0")
JOB = os.environ["SLURM_JOB_ID"]
LEDGER = pathlib.Path(os.environ["TRAINER_LEDGER"])
BEGAN = time.time()


def setting(name, usual):
    return float(os.environ.get(name, usual))


def refuse(why):
    print(f"trainer: {why}", file=sys.stderr, flush=True)
    sys.exit(2)


def table(name):
    return json.loads((pathlib.Path(os.environ["TRAINER_OPTIONS"]) / f"{name}.json").read_text())


class Framework:
    """What one of them saves where, and by which options."""

    signals = ()
    minutes = None
    save = load = None
    every = 0

    def whole(self):
        """The newest checkpoint to go on from: its steps and folder."""
        raise NotImplementedError

    def write(self, step):
        raise NotImplementedError


def hurry(folder, step):
    """Writes the bulk of a checkpoint, slowly, so that it can be interrupted."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "part").write_text(f"{step}\n")
    time.sleep(setting("TRAINER_SAVE", "0.2"))
    (folder / "weights").write_text(f"{step}\n")


def note(path, text, step):
    """Writes a note as they do: it is empty for a moment."""
    with path.open("w") as file:
        if os.environ.get("TRAINER_TORN", "") == f"{ATTEMPT}:{step}":
            os.kill(os.getpid(), signal.SIGKILL)
        file.write(text)


class Megatron(Framework):
    """Megatron-LM: argparse; `iter_0000010` and a tracker (megatron/training/checkpointing.py)."""

    def options(self, words):
        known = table("megatron-lm-0.19")
        said, at = {}, 0
        while at < len(words):
            name = words[at].removeprefix("--")
            if not words[at].startswith("--") or name not in known:
                refuse(f"unrecognized arguments: {words[at]}")
            values = []
            at += 1
            while at < len(words) and not words[at].startswith("--"):
                values.append(words[at])
                at += 1
            if (known[name] == "nothing") != (not values):
                refuse(f"--{name} and {values}")
            said[name] = values[0] if values else True
        return said

    def take(self, said):
        self.steps = int(said["train-iters"])
        self.save = said.get("save")
        self.load = said.get("load")
        if self.save and "save-interval" not in said:
            refuse("--save without --save-interval")
        self.every = int(said.get("save-interval", 0))
        if said.get("exit-signal-handler"):
            self.signals = (getattr(signal, said.get("exit-signal", "SIGTERM")),)
        self.minutes = said.get("exit-duration-in-mins")

    def whole(self):
        tracker = pathlib.Path(self.load or "") / "latest_checkpointed_iteration.txt"
        if not self.load or not tracker.is_file():
            return 0, None
        step = int(tracker.read_text())
        return step, tracker.parent / f"iter_{step:07d}"

    def write(self, step):
        folder = pathlib.Path(self.save) / f"iter_{step:07d}"
        hurry(folder, step)
        self.publish(folder, step)

    def publish(self, folder, step):
        (folder / ".metadata").touch()
        note(pathlib.Path(self.save) / "latest_checkpointed_iteration.txt", str(step), step)


class Bridge(Megatron):
    """Megatron Bridge: overrides; a tracker of its own beside Megatron-LM's (training/checkpointing.py)."""

    def options(self, words):
        known = table("bridge-0.6")
        said = {}
        while words:
            word, words = words[0], words[1:]
            if word == "--recipe":
                words = words[1:]
                continue
            name, equals, value = word.partition("=")
            if not equals or (name not in known and not name.startswith("logger.")):
                refuse(f"no such override: {word}")
            said[name] = value.strip("'")
        return {name: None if value == "null" else value for name, value in said.items()}

    def take(self, said):
        usual = "nemo_experiments/default/checkpoints"
        self.steps = int(said["train.train_iters"])
        self.save = said.get("checkpoint.save", usual)
        self.load = said.get("checkpoint.load", usual)
        self.every = int(said.get("checkpoint.save_interval", 500))
        if said.get("train.exit_signal_handler") == "true":
            self.signals = (int(said.get("train.exit_signal", signal.SIGTERM)),)
        self.minutes = said.get("train.exit_duration_in_mins")

    def publish(self, folder, step):
        (folder / ".metadata").touch()
        (folder / "train_state.pt").write_text(str(step))
        note(pathlib.Path(self.save) / "latest_train_state.pt", str(step), step)
        super().publish(folder, step)

    def whole(self):
        state = pathlib.Path(self.load) / "latest_train_state.pt"
        if not state.is_file():
            return super().whole()
        step = int(state.read_text())
        return step, state.parent / f"iter_{step:07d}"


class Automodel(Framework):
    """NeMo Automodel: `epoch_0_step_9` after ten steps, LATEST, a mark while it is not whole (components/checkpoint)."""

    OWN = {
        "seed", "distributed.strategy", "step_scheduler.local_batch_size", "optimizer.lr", "optimizer.weight_decay",
        "optimizer.betas", "optimizer.eps", "clip_grad_norm.max_norm", "checkpoint.restore_from",
    }

    def options(self, words):
        known = set(table("automodel-0.7")) | self.OWN
        said = {}
        words = words[1:]
        while words:
            name, value, words = words[0].removeprefix("--"), words[1], words[2:]
            if name not in known and not name.startswith(("distributed.mp_policy.", "distributed.offload_policy.")):
                refuse(f"no such option: {name}")
            said[name] = value
        return said

    def take(self, said):
        self.steps = int(said["step_scheduler.max_steps"])
        self.every = int(said.get("step_scheduler.ckpt_every_steps", 100))
        if said.get("checkpoint.enabled", "true") == "true":
            self.save = self.load = said.get("checkpoint.checkpoint_dir", "checkpoints")
        if said.get("checkpoint.max_recent_checkpoints", "None") != "None":
            refuse("this stand-in removes nothing")
        self.signals = (getattr(signal, said.get("step_scheduler.preemption_signal", "SIGTERM")),)

    def whole(self):
        link = pathlib.Path(self.load or "") / "LATEST"
        if not self.load or not link.is_dir() or (link / ".incomplete").exists():
            return 0, None
        return int(os.readlink(link).rsplit("_step_", 1)[1]) + 1, link

    def write(self, step):
        root = pathlib.Path(self.save)
        folder = root / f"epoch_0_step_{step - 1}"
        if folder.exists() and not (folder / ".incomplete").exists():
            refuse(f"{folder} already holds a published checkpoint")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".incomplete").touch()
        hurry(folder, step)
        new = root / f".LATEST.{JOB}.{ATTEMPT}"
        new.symlink_to(folder.name)
        if os.environ.get("TRAINER_TORN", "") == f"{ATTEMPT}:{step}":
            os.kill(os.getpid(), signal.SIGKILL)
        os.replace(new, root / "LATEST")
        (folder / ".incomplete").unlink()


class Torchtitan(Framework):
    """torchtitan: `step-10` with `.metadata` written last; it keeps the newest ten unless told (components/checkpointer)."""

    def __init__(self, version):
        self.known = table(f"torchtitan-{version}")
        self.dump = "job.dump_folder" if version == "0.2" else "dump_folder"

    def options(self, words):
        said = {}
        while words:
            word, words = words[0], words[1:]
            if word.startswith("activation-checkpoint:"):
                continue
            name = word.removeprefix("--").replace("-", "_")
            off = name.replace(".no_", ".")
            if name in ("module", "config"):
                words = words[1:]
            elif name in self.known and words and not words[0].startswith(("--", "activation-checkpoint:")):
                said[name], words = words[0], words[1:]
            elif off in self.known:
                said[off] = off == name
            else:
                refuse(f"Unrecognized options: {word}")
        return said

    def take(self, said):
        self.steps = int(said["training.steps"])
        self.every = int(said.get("checkpoint.interval", 500))
        self.keep = int(said.get("checkpoint.keep_latest_k", 10))
        if said.get("checkpoint.enable"):
            self.save = self.load = os.path.join(
                said.get(self.dump, "outputs"), said.get("checkpoint.folder", "checkpoint")
            )

    def folders(self):
        folders = pathlib.Path(self.load or "").glob("step-*") if self.load else []
        return sorted((int(folder.name.removeprefix("step-")), folder) for folder in folders)

    def whole(self):
        whole = [(step, folder) for step, folder in self.folders() if (folder / ".metadata").exists()]
        return whole[-1] if whole else (0, None)

    def write(self, step):
        folder = pathlib.Path(self.save) / f"step-{step}"
        hurry(folder, step)
        # torch writes it under another name first.
        note(folder / ".metadata.tmp", "", step)
        os.replace(folder / ".metadata.tmp", folder / ".metadata")
        for _, old in self.folders()[: -self.keep] if self.keep else []:
            shutil.rmtree(old)


def framework():
    script = sys.argv[1]
    if script.endswith("pretrain_gpt.py"):
        return Megatron(), sys.argv[2:]
    if script.endswith("run_recipe.py"):
        return Bridge(), sys.argv[2:]
    if sys.argv[1:3] == ["-m", "nemo_automodel.cli.app"]:
        return Automodel(), sys.argv[3:]
    if sys.argv[1:3] == ["-m", "torchtitan.train"]:
        return Torchtitan("0.2" if "--job.config_file" in sys.argv else "0.3"), sys.argv[3:]
    refuse(f"nobody stands in for {sys.argv[1:3]}")


def alive(rank):
    """What a rank touches as long as it lives."""
    return LEDGER / f"{JOB}.{ATTEMPT}.alive.{rank}"


def wait_for_all(since):
    """No step ends without every rank, whatever has become of it."""
    waiting = set(range(1, WORLD))
    while waiting:
        for rank in list(waiting):
            try:
                if alive(rank).stat().st_mtime >= since:
                    waiting.remove(rank)
            except FileNotFoundError:
                pass
        time.sleep(0.01)


def follow(leader):
    """Any rank but the first: it does as the first does."""
    ended = LEDGER / f"{JOB}.{ATTEMPT}.ended"
    dies = os.environ.get("TRAINER_DIES", "")
    while not ended.exists():
        alive(RANK).touch()
        if RANK == WORLD - 1 and dies and f"{ATTEMPT}:" == dies[: len(ATTEMPT) + 1]:
            step = int(dies.split(":")[1])
            if leader.exists() and any(line == f"{ATTEMPT} {step}" for line in leader.read_text().split("\n")):
                os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.03)


def main():
    kind, words = framework()
    kind.take(kind.options(words))
    stop = []
    for number in kind.signals:
        signal.signal(number, lambda *_: stop.append(True))
    LEDGER.mkdir(parents=True, exist_ok=True)
    ledger = LEDGER / JOB
    if RANK != 0:
        return follow(ledger)

    step, folder = kind.whole()
    if folder is not None and int((folder / "weights").read_text()) != step:
        refuse(f"{folder} is no checkpoint of step {step}")
    print(f"goes on from step {step}", flush=True)
    saved = step
    while step < kind.steps:
        start = time.time()
        time.sleep(setting("TRAINER_STEP", "0.1"))
        wait_for_all(start)
        step += 1
        with ledger.open("a") as lines:
            lines.write(f"{ATTEMPT} {step}\n")
        due = kind.every and step % kind.every == 0
        late = kind.minutes is not None and time.time() - BEGAN > int(kind.minutes) * setting("TRAINER_MINUTE", "60")
        ends = bool(stop) or late or step == kind.steps
        if kind.save and (due or ends):
            kind.write(step)
            saved = step
            print(f"has saved step {step}", flush=True)
        if ends:
            break
    print(f"ends after step {step}, saved {saved}", flush=True)
    (LEDGER / f"{JOB}.{ATTEMPT}.ended").touch()


main()
