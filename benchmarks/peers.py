"""torch as a contender of `training.py`: starts a worker (`torch_loops.py`) and asks it for turns.

The one idea: importing torch and starting torchrun take seconds, so a worker is started once and sleeps between turns,
reading a named pipe. It cannot outlive us: when we end, the pipe ends, and it gets a SIGTERM.

    with started({"DataLoader": Loop("loader")}, network, x, y) as [peer]: peer.turn(1.0)

This file does not import torch: unisono's ranks are forked from the process that imports it.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from subprocess import TimeoutExpired
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self, final

import numpy as np
from contenders import Contender

from unisono.environment.os_environ import child_environment
from unisono.errors import UnisonoError
from unisono.resources import usable_cores
from unisono.supervise.children import Subprocess

SILENCE_S = 90.0
"""How long a worker may take for anything: to start, or for a turn."""

_SCRIPT = Path(__file__).parent / "torch_loops.py"


@final
@dataclass(frozen=True, kw_only=True)
class Network:
    """What is trained, and how."""

    hidden: list[int] = field(default_factory=list)
    activation: str = "relu"
    """relu or sigmoid"""
    normed: bool = False
    """Batch norm between linear and activation."""
    spec: str = ""
    """Instead of these: one of unisono's torch networks, by the name it has on the command line,"""
    shape: list[int] = field(default_factory=list)
    """for samples of this shape,"""
    dropout: float = 0.0
    optimizer: str
    """adam or momentum"""
    lr: float
    batch: int
    """Samples of a step, per process."""


@final
@dataclass(frozen=True)
class Loop:
    """Which loop of `torch_loops.py`."""

    name: str
    """ddp, accelerate, lightning, loader or memory"""
    ranks: int = 0
    """Under torchrun; 0: without."""
    backend: str = "gloo"
    """Of torch.distributed, for ddp, accelerate and lightning; none: ddp exchanges nothing."""


@final
@dataclass(frozen=True, kw_only=True)
class Spec:
    """What a worker is told."""

    loop: str
    """The name of a `Loop`."""
    network: Network
    x: str
    """A .npy file, (rows, features) float32;"""
    y: str
    """one of (rows,) int64."""
    go: str
    """Where rank 0 reads turns from: seconds, a line each."""
    threads: int
    """What the environment allows; `memory` tries a single one, too."""
    backend: str = "gloo"
    """Of torch.distributed."""

    def pack(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def unpack(packed: str) -> "Spec":
        values = json.loads(packed)
        return Spec(**values | {"network": Network(**values["network"])})


@final
class Peer(Contender):
    """A worker, or `ranks` of them under torchrun. What it says on stderr goes to `log`."""

    def __init__(self, name: str, spec: Spec, ranks: int, log: Path) -> None:
        self.name, self._log = name, log
        os.mkfifo(spec.go)
        self._go = os.open(spec.go, os.O_RDWR)  # for writing alone it would wait for the reader
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks else []
        command = [sys.executable, *launcher, str(_SCRIPT), spec.pack()]
        with open(log, "wb") as log_file:
            self._process = Subprocess(command, child_environment(threads=spec.threads), log_file.fileno())
        self._lines = self._process.lines(SILENCE_S)

    def wait_until_ready(self) -> None:
        self._read()

    def turn(self, seconds: float) -> float:
        os.write(self._go, b"%f\n" % seconds)
        record = self._read()
        self.note = record["note"]
        return float(record["samples_per_s"])

    def dismiss(self) -> None:
        """No more turns: it ends by itself."""
        if self._go >= 0:
            os.close(self._go)
            self._go = -1

    def _read(self) -> dict[str, Any]:
        for line in self._lines:
            if line.startswith("{"):
                return dict(json.loads(line))
        said = self._log.read_text(errors="replace")
        # torchrun's own report, which comes last, does not tell why.
        cause = said[said.find("Traceback") :] if "Traceback" in said else said
        raise UnisonoError(
            "\n".join([f"{self.name} ended, saying:", *cause.splitlines()[:20]]),
            hint="does torch work without unisono?",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.dismiss()
        with self._process:
            if error is None:
                with suppress(TimeoutExpired):
                    self._process.wait()


@contextmanager
def started(loops: Mapping[str, Loop], network: Network, x: np.ndarray, y: np.ndarray) -> Iterator[list[Peer]]:
    """Workers for these data, by the names of the contenders; ready, and ended with the block."""
    with TemporaryDirectory(prefix="unisono-benchmark-") as name, ExitStack() as stack:
        folder, peers = Path(name), list[Peer]()
        files = {"x": str(folder / "x.npy"), "y": str(folder / "y.npy")}
        np.save(files["x"], x)
        np.save(files["y"], y)
        for number, (title, loop) in enumerate(loops.items()):
            threads = usable_cores() if loop.name == "memory" else 1
            go = str(folder / f"go-{number}")
            spec = Spec(loop=loop.name, network=network, **files, go=go, threads=threads, backend=loop.backend)
            peers.append(stack.enter_context(Peer(title, spec, loop.ranks, folder / f"log-{number}")))
        for peer in peers:
            peer.wait_until_ready()
        for path in files.values():
            os.unlink(path)  # everybody has read it, and should we be killed, little is left
        yield peers
        for peer in peers:
            peer.dismiss()
