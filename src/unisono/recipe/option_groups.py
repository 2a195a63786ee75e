"""Groups of a recipe: every option is defined once, in the group where a user would look for it.

The one idea: a group is a dataclass and a table of a TOML file. A field's docstring is the help text of its option. The
option has the field's name, unless the field names another: `Ranks.count` is the option `ranks`.

    Learning(lr=0.1, epochs=5).lr

Limits: imports nothing heavy. Here only the ranges of numbers are checked; the names of models, data and optimizers are
checked where these are made.
"""

import math
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, final

from unisono.errors import UserError

DEFAULT_SHARDS = 8
MOST_THREADS = 1024

T = TypeVar("T")


def flag(option: str) -> str:
    """An option as the command line has it: batch_size -> --batch-size."""
    return "--" + option.replace("_", "-")


def _option(default: T, *, option: str = "", least: int | None = None) -> T:
    """A field. option: its name outside of the group, if that differs; least: the smallest number that is valid."""
    return field(default=default, metadata={"option": option, "least": least})


def _check_numbers(group: Any) -> None:
    """A `UserError` for numbers that are not finite, or below what their fields allow."""
    for entry in fields(group):
        name, value = flag(entry.metadata.get("option") or entry.name), getattr(group, entry.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{name} is {value}", hint="give a finite number")
        least = entry.metadata.get("least")
        if least is not None and value < least:
            raise UserError(f"{name} is {value}", hint=f"give {least} or more")


@final
@dataclass(frozen=True, kw_only=True)
class Model:
    """The network."""

    name: str = _option("mlp:64", option="model")
    """linear, mlp:128,64 or bn-mlp:32, the numbers are the sizes of the hidden layers; with torch also cnn:16,32,
    wideresnet:1, gpt:layers=2,heads=2,width=64, or file.py:function, which returns a torch module."""

    engine: str = "auto"
    """numpy, torch or auto: numpy for linear, mlp and bn-mlp, torch for all other models."""

    precision: str = "fp32"
    """fp32, or bf16 or fp16: products in 16 bits, with torch; parameters and sums stay fp32."""

    activation: str = ""
    """relu, tanh, sigmoid or gelu for the hidden layers; the model's own if empty."""

    dropout: float = 0.0
    """Probability of dropping a hidden value."""

    sync_batchnorm: bool = False
    """Batch norm over the whole global batch instead of each shard, with torch and sync. It helps if shards are small
    (below 16 samples or so). Small networks take up to twice as long; the verdict says how long it took."""

    def __post_init__(self) -> None:
        _check_numbers(self)


@final
@dataclass(frozen=True, kw_only=True)
class Data:
    """The data."""

    name: str = _option("digits", option="data")
    """digits, mnist, fashion-mnist, synthetic:..., a directory of .npy, a .npz, or file.py:function; for gpt
    synthetic-text or a .txt file. `unisono data list` explains them."""

    directory: str = _option("", option="data_dir")
    """Where the files of mnist and fashion-mnist are. It is refused with other data: name those with --data."""

    validation: float = 0.0
    """Share of the training data held out for validation."""

    normalise: str = "auto"
    """none, unit (0 to 1), standard (mean 0, deviation 1) or auto (what suits the data)."""

    def __post_init__(self) -> None:
        _check_numbers(self)


@final
@dataclass(frozen=True, kw_only=True)
class Ranks:
    """Processes and threads."""

    count: int = _option(2, option="ranks", least=1)
    """Processes on this machine. Their number changes the time, never the result; with async, where it changes the
    workers, it changes both. It has no effect under mpirun, torchrun and srun."""

    shards: int = _option(0, least=0)
    """Slices of each global batch: part of the recipe, not of the machine. 0: 8, or one per rank if there are more
    ranks. With async a push is one slice, and this option has no effect."""

    threads: int = _option(1, least=1)
    """BLAS threads of each rank. Part of the recipe: other numbers give other bits."""

    def __post_init__(self) -> None:
        _check_numbers(self)
        if self.threads > MOST_THREADS:
            raise UserError(f"--threads is {self.threads}", hint="give as many as there are cores for a rank, or fewer")


@final
@dataclass(frozen=True, kw_only=True)
class Learning:
    """Learning and evaluation."""

    batch_size: int | str = 64
    """The global batch, or full: all samples in one step. With async: one push of one worker."""

    batch_size_per_rank: int = 0
    """The batch of each rank instead: the global batch, and with it the result, then grows with the ranks."""

    drop_last: bool = False
    """Leave out the samples that do not fill the last batch of an epoch."""

    epochs: int = _option(20, least=1)
    """Passes over the training data."""

    optimizer: str = "adam"
    """sgd, momentum, nesterov, adam, adamw or lars."""

    lr: float = 0.01
    """Learning rate."""

    momentum: float = -1.0
    """Momentum; below 0: the optimizer's own default."""

    weight_decay: float = -1.0
    """Weight decay; below 0: the optimizer's own default."""

    clip: float = 0.0
    """Largest global norm of the gradient; 0: no clipping."""

    schedule: str = "constant"
    """constant, step or cosine."""

    warmup_epochs: float = 0.0
    """Epochs over which the learning rate rises from 0."""

    scale_lr: str = "none"
    """none, linear or sqrt: how the learning rate follows --batch-size-per-rank times the ranks."""

    seed: int = 0
    """Decides initial weights, the order of samples, dropout and synthetic data."""

    eval_every: int = _option(1, least=1)
    """Evaluate every so many epochs, and after the last one."""

    target_accuracy: float = 0.0
    """Stop early when the last --patience evaluations all reach this accuracy; 0: never."""

    patience: int = _option(2, least=1)
    """See --target-accuracy."""

    def __post_init__(self) -> None:
        _check_numbers(self)
        if isinstance(self.batch_size, str) and self.batch_size != "full":
            raise UserError(f"--batch-size is {self.batch_size!r}", hint="give a whole number, or full")
        if not isinstance(self.batch_size, str) and self.batch_size < 1:
            raise UserError(f"--batch-size is {self.batch_size}", hint="give 1 or more, or full")
        if self.batch_size_per_rank < 0:
            raise UserError(f"--batch-size-per-rank is {self.batch_size_per_rank}", hint="give 1 or more")
        if not 0 <= self.target_accuracy <= 1:
            raise UserError(f"--target-accuracy is {self.target_accuracy}", hint="give a share such as 0.97")


@final
@dataclass(frozen=True, kw_only=True)
class Strategy:
    """How ranks work together."""

    name: str = _option("sync", option="strategy")
    """sync; local: a replica of the network for each shard, averaged every --sync-every steps; async: masters own the
    parameters and workers push gradients without waiting for each other, so the result depends on the ranks; or ddp,
    accelerate: the same recipe by torch's DistributedDataParallel or by Hugging Face Accelerate, to compare with. These
    two have one shard per rank, give other bits on other numbers of ranks, and have no snapshots and no take-over:
    --respawn, --max-restarts and --stall-timeout have no effect."""

    sync_every: int | str = ""
    """For local: steps that replicas train alone before they are averaged; 16 if it is not given. They are also
    averaged at the end of every epoch."""

    local_after: int = 0
    """For local: replicas are averaged after every step in the first so many epochs (post-local SGD)."""

    masters: int = _option(1, least=1)
    """For async: how many of the ranks are masters, each with a part of the parameters; the others are workers."""

    staleness_rule: str = "safe"
    """For async: safe (learning rate / max(workers, staleness), gradients clipped), softsync (the mean of as many
    gradients as there are workers), scaled (learning rate / staleness), delay-compensated, or plain."""

    max_staleness: str = ""
    """For async: the number of updates by which a gradient may be late. 12 or 12:wait: the others wait for the slowest
    worker; 12:drop: later gradients are not applied; none: no bound. Empty: twice the workers for safe, none for the
    other rules."""

    deal: str = "static"
    """For async: static (all workers compute equally many batches) or dynamic (faster workers compute more). Each batch
    is used once."""

    order: str = "free"
    """For async: free; round-robin (workers push in turn: the same bits again, unless a worker dies or the run is
    resumed in the middle of an epoch or on other ranks); or the pushes.csv of a run, to repeat it bit by bit. Such a
    file is refused, with the reason, for another recipe, or if a worker was replaced, or the run resumed, within one of
    its epochs."""

    device: str = "auto"
    """cpu, cuda (a GPU per rank; for ddp and accelerate only), or auto: cuda for those two where there are GPUs."""

    allreduce: str = "arena"
    """arena: one shared copy of the parameters, same bits on any number of ranks. naive, ring, tree, doubling, halving,
    native: a copy per rank and this all-reduce, for comparison."""

    wire: str = "fp32"
    """fp32, or bf16: messages between nodes, and the replicas of --strategy local, are rounded to 16 bits. This halves
    the bytes between nodes (between ranks, if --allreduce is not arena). Other layouts of nodes then give other
    bits."""

    transport: str = "auto"
    """What moves arrays between ranks: shm, mpi (under mpirun), gloo, or nccl (GPUs, under torchrun); auto: shm, or
    what the launcher uses."""

    def __post_init__(self) -> None:
        _check_numbers(self)


@final
@dataclass(frozen=True, kw_only=True)
class Faults:
    """Faults and snapshots."""

    snapshot_every: str = ""
    """How often to write a snapshot to resume from, about: 500steps, 2epochs or 30s. A snapshot that is due while the
    last one is still being written is left out. Empty: only when the run is stopped. With async between epochs only,
    2epochs or 30s; when it is stopped, at the next push (under mpirun and other launchers, if the signal reaches only
    masters other than the first, at the end of the epoch)."""

    keep: int = _option(2, least=2)
    """How many snapshots to keep."""

    resume: str = ""
    """A run directory: continue from its newest snapshot, on any number of ranks, with the same bits. With async, bits
    differ on other ranks, or if the run was stopped in the middle of an epoch."""

    allow_change: str = ""
    """Options that may differ from those of the resumed run, such as lr,epochs. The result then changes."""

    respawn: bool = True
    """Replace ranks that die. In both cases the others take over, with the same bits. With async, bits differ after the
    death of a worker, because another one gets its batch; they do not after that of a master."""

    max_restarts: int = _option(100, least=0)
    """More deaths of ranks than this within ten minutes end the run, with a snapshot."""

    stall_timeout: float = _option(0.0, least=0)
    """Seconds after which a rank that does not move is replaced; 0: 60, or 20 times a usual step if that is longer."""

    slow: str = ""
    """Ranks to slow down, to see the effect: 1:4 makes rank 1 compute four times as long, by sleeping; 1:4,3:2 slows
    two ranks. With async only workers. It changes the time, never the result."""

    def __post_init__(self) -> None:
        _check_numbers(self)


@final
@dataclass(frozen=True, kw_only=True)
class Output:
    """Output."""

    watts_per_core: float = _option(8.0, least=0)
    """Power of one busy core, for an estimate of the energy where no counter can be read; 0: no estimate."""

    log_ranks: bool = False
    """Print what each rank did in each epoch, in the order of the ranks."""

    tensorboard: bool = False
    """Write events for TensorBoard to tensorboard/ in the run directory, during the run."""

    directory: str = _option("", option="out")
    """The run directory; a new one under runs/ if empty."""

    def __post_init__(self) -> None:
        _check_numbers(self)
