"""Weights in files: what a run has learnt, read in model order, checked, and written in the formats of others.

The one idea: weights are named arrays in model order, parameters before buffers; each format is one function that
writes them into an open file, found by the ending of the file's name. A safetensors file lists its arrays by name, so
ours carry their order as metadata, and with it how to use them (`model_card.py`).

    from unisono.storage import weights
    arrays = weights.read("runs/mine")                                    # {"0.W": (64, 10) float32, "0.b": ...}
    weights.export(weights.load("runs/mine"), Path("mine.npz"))

Equal weights of one recipe give equal files, byte by byte, in every format. No pickle is ever read; .pt and .pth are
written only.
Limits: all arrays are held in memory, and once more while they are written. A file that appears between the look for
it and the end of writing is replaced. Types that NumPy lacks (bfloat16, float8) are refused.
"""

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, final

import numpy as np
from safetensors.numpy import save as safetensors_bytes

from unisono.errors import UnisonoError, UserError, unknown_name
from unisono.files import open_file, read_file, write_file
from unisono.models.base import Array, Model
from unisono.models.nets import torch_state
from unisono.optional_packages import how_to_install
from unisono.parsing import parse_json
from unisono.resources import check_memory
from unisono.safetensors_file import MOST_HEADER_BYTES, read_header, read_tensor
from unisono.safetensors_file import TYPES as TYPES  # who writes such files names them, too
from unisono.storage.fallback_writer import NotWritten
from unisono.storage.model_card import ModelCard
from unisono.storage.rundir import RunDirectory

_MOST_SUMMARY_BYTES = 16 << 20


@final
@dataclass(frozen=True)
class Weights:
    """Arrays by name, both in model order."""

    parameters: Mapping[str, Array]
    buffers: Mapping[str, Array]
    state_names: Mapping[str, str] | None = None
    """Of a torch module: the names in its state dict -> the names here, tied ones several times. None: not torch's."""
    card: ModelCard | None = None
    """How to use them on new samples. None: nobody knows."""
    epoch: int | None = None
    """After which epoch of a run; None: not known."""

    @staticmethod
    def of(
        model: Model, params: Array, buffers: Array, card: ModelCard | None = None, epoch: int | None = None
    ) -> "Weights":
        """Those of a model, as views of its vectors; beyond their lengths lies padding."""
        parts = params[: model.layout.length], buffers[: model.buffers_layout.length]
        return Weights(*model.named(*parts), model.state_names, card, epoch)

    @property
    def arrays(self) -> dict[str, Array]:
        """All of them: parameters, then buffers."""
        return {**self.parameters, **self.buffers}

    def state_dict(self) -> dict[str, Any]:
        """torch's tensors by torch's names, for `load_state_dict` of the same network. A network of NumPy's lacks batch
        norm's num_batches_tracked; torch asks for it only in its own files."""
        arrays, names = self.arrays, self.state_names
        state = torch_state(arrays) if names is None else {key: arrays[name] for key, name in names.items()}
        if names is None and len(state) < len(arrays):
            raise UserError(f"of {', '.join(arrays)} some have one name in torch", hint="export to .npz instead")
        if find_spec("torch") is None:
            raise UserError(
                "a state dict (a .pt or .pth file) needs the package torch, which is not installed",
                hint=how_to_install("torch"),
            )
        import torch

        return {name: torch.from_numpy(array) for name, array in state.items()}

    def sha256(self) -> str:
        """A run's `weights_sha256`: all values in model order, C order, little endian, nothing between them."""
        digest = hashlib.sha256()
        for array in self.arrays.values():
            digest.update(array.astype(array.dtype.newbyteorder("<"), order="C", copy=False).tobytes())
        return digest.hexdigest()


def read(run: str | Path) -> dict[str, Array]:
    """The arrays of a run directory or a .safetensors file, in model order; those of a run agree with its summary."""
    weights = load(run)
    verify(run, weights)
    return weights.arrays


def load(run: str | Path) -> Weights:
    """As `read`, without looking at the summary. A file that is not ours has parameters only, sorted by name."""
    path = Path(run)
    try:
        path = _find(path)
        with open_file(path, follow_links=not Path(run).is_dir()) as file:
            return load_from(file, path, ordered=Path(run).is_dir())
    except OSError as error:
        reason = error.strerror
    except ValueError as error:
        reason = f"it {error}"
    raise UserError(
        f"{path} cannot be read: {reason}", hint="copy or train it again if it is damaged: nothing can be recovered"
    )


def load_from(file: BinaryIO, path: Path, *, ordered: bool = False) -> Weights:
    """Those of an open safetensors file, which is at `path`; a `ValueError` with a plain reason if it is damaged.

    ordered: the file must say in which order its arrays are.
    """
    header = read_header(file)
    for name, tensor in header.tensors.items():
        _check(path, name, tensor.type_name)
    held = sum(tensor.stop - tensor.start for tensor in header.tensors.values())
    check_memory(f"the arrays of {path}", held, "end other programs, or raise the memory limit of the job")
    arrays = {name: read_tensor(file, tensor) for name, tensor in header.tensors.items()}
    if "order" in header.metadata:
        order = _read_order(path, header.metadata["order"], list(arrays))
    elif ordered:
        raise UserError(
            f"{path} does not say the order of its arrays, so it cannot be compared with the run's summary",
            hint=f"name the file itself to have the arrays by name: {path}",
        )
    else:
        order = _Order(list(arrays), [])
    parameters, buffers = ({name: arrays[name] for name in part} for part in (order.parameters, order.buffers))
    return Weights(parameters, buffers, order.torch, order.card, order.epoch)


def epoch_in(path: Path) -> int | None:
    """The epoch after which the weights of a run were saved; None if the file is not there, or does not say."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        with open_file(path, follow_links=False) as file:
            metadata = read_header(file).metadata
        epoch = parse_json(metadata["order"], most_bytes=MOST_HEADER_BYTES).get("epoch")
        return epoch if isinstance(epoch, int) else None
    return None


def verify(run: str | Path, weights: Weights) -> bool:
    """Whether the run's summary says the same hash; False: the run has not finished. Another hash is a
    `UnisonoError`."""
    path = Path(run) / "summary.json"
    if not Path(run).is_dir() or not path.exists():
        return False
    try:
        summary = parse_json(read_file(path, _MOST_SUMMARY_BYTES, follow_links=False))
        if summary.get("status", "finished") != "finished":
            return False  # the weights are those of its last epoch, of which no hash was kept
        told, ended, elsewhere = summary["weights_sha256"], summary.get("epochs"), summary.get("weights_path")
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        raise UserError(
            f"{path} is damaged, or holds no weights_sha256",
            hint=f"name the file itself to do without: {RunDirectory(Path(run)).weights}",
        ) from None
    if told != weights.sha256():
        if weights.epoch is not None and weights.epoch != ended:
            raise UnisonoError(
                f"{RunDirectory(Path(run)).weights} holds the weights of epoch {weights.epoch}; the run ended with "
                f"those of epoch {ended}, which its disk did not take",
                hint=f"they are in {elsewhere}: copy them here" if elsewhere else "name the file itself to use these",
            )
        raise UnisonoError(
            f"the weights of {run} are not those that its run ended with:\n"
            f"weights_sha256 {weights.sha256()} of weights.safetensors\nweights_sha256 {told} in summary.json",
            hint="one of the two was replaced or changed after the run; train again, or restore it",
        )
    return True


def save(weights: Weights, path: Path) -> None:
    """The safetensors file of a run, whole or not at all; a file that is there is replaced."""
    _write(weights, path, _safetensors)


def export(weights: Weights, path: Path, *, force: bool = False) -> None:
    """A file in the format of its ending (`FORMATS`), whole or not at all; `force`: one that is there is replaced."""
    ending = path.suffix.lower()
    if os.path.isdir(path):
        raise UserError(f"{path} is a directory", hint="give the name of a file")
    if ending not in FORMATS:
        raise unknown_name(f"ending of {path.name!r}:", ending, FORMATS)
    if not os.path.isdir(path.parent):
        raise UserError(f"there is no directory {path.parent}", hint="make it first, or give another file")
    if os.path.lexists(path) and not force:
        raise UserError(f"{path} exists", hint="give another name, or --force to replace it")
    _write(weights, path, FORMATS[ending])


def _npz(weights: Weights, file: BinaryIO) -> None:
    # Not np.savez, which takes no array called "file".
    with zipfile.ZipFile(file, "w") as bundle:
        for name, array in weights.arrays.items():
            with bundle.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def _safetensors(weights: Weights, file: BinaryIO) -> None:
    # One key: safetensors writes several in an order that changes from process to process.
    order: dict[str, Any] = {"parameters": [*weights.parameters], "buffers": [*weights.buffers]}
    if weights.state_names is not None:
        order["torch"] = dict(weights.state_names)
    if weights.card is not None:
        order["card"] = weights.card.plain
    if weights.epoch is not None:
        order["epoch"] = weights.epoch
    metadata = {"order": json.dumps(order)}
    # In C order: safetensors would write the memory of another array as it lies.
    plain = {name: np.asarray(array, order="C") for name, array in weights.arrays.items()}
    file.write(safetensors_bytes(plain, metadata))


def _txt(weights: Weights, file: BinaryIO) -> None:
    for name, array in weights.arrays.items():
        file.write(f"{name}:\n".encode())
        np.savetxt(file, array.ravel(), fmt="%.18e")


def _torch(weights: Weights, file: BinaryIO) -> None:
    # By way of memory: torch turns a full disk into an error that does not say so.
    state = weights.state_dict()
    import torch

    torch.save(state, memory := io.BytesIO())
    file.write(memory.getbuffer())


FORMATS: dict[str, Callable[[Weights, BinaryIO], None]] = {
    ".npz": _npz,
    ".safetensors": _safetensors,
    ".txt": _txt,
    ".pt": _torch,
    ".pth": _torch,
}


def _write(weights: Weights, path: Path, write: Callable[[Weights, BinaryIO], None]) -> None:
    try:
        write_file(path, partial(write, weights))
    except OSError as error:
        raise NotWritten(
            f"{path} cannot be written: {error.strerror}",
            hint="give a file that you may write, on a disk with room",
            number=error.errno,
        ) from None


def _find(run: Path) -> Path:
    """The file with the weights of `run`."""
    if run.is_dir():
        path = RunDirectory(run).weights
        if path.exists():
            return path
        if (run / "recipe.toml").exists():
            raise UserError(
                f"the run {run} holds no weights: there is no {path.name}",
                hint="they are written at the end of every epoch, so none has ended yet, or they were removed; "
                f"unisono train {run / 'recipe.toml'} trains them again",
            )
        raise UserError(f"{run} is not a run directory", hint="give what --out was, or what the run's last line said")
    if not run.exists():
        raise UserError(f"there is no run {run}", hint="unisono train --out DIRECTORY makes one")
    if run.suffix.lower() != ".safetensors":
        raise UserError(f"{run} is no run directory and no .safetensors file", hint="other formats are written only")
    return run


def _check(path: Path, name: str, type_name: str) -> None:
    # Names are shown on terminals and become lines of a text file.
    if not name.isprintable():
        raise UserError(f"{path} holds an array called {name[:100]!r}", hint="give it a name that can be printed")
    if type_name not in TYPES:
        raise UserError(f"{path}: {name} has type {type_name}", hint=f"convert it to one of {', '.join(TYPES)}")


@final
class _Order(NamedTuple):
    """What a file says of its arrays: names in model order, the names in a torch state dict, the card, the epoch."""

    parameters: list[str]
    buffers: list[str]
    torch: dict[str, str] | None = None
    card: ModelCard | None = None
    epoch: int | None = None


def _read_order(path: Path, text: str, names: list[str]) -> _Order:
    try:
        order = parse_json(text, most_bytes=MOST_HEADER_BYTES, strict=True)
        parameters, buffers = list(order["parameters"]), list(order["buffers"])
        torch, epoch = order.get("torch"), order.get("epoch")
        card = ModelCard.read(order["card"]) if "card" in order else None  # files of older versions have none
        known = sorted([*parameters, *buffers]) == sorted(names) and set((torch or {}).values()) <= set(names)
        if known and (torch is None or isinstance(torch, dict)):
            return _Order(parameters, buffers, torch, card, epoch if isinstance(epoch, int) else None)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
        pass
    raise UserError(f"{path} is damaged: the order it gives is not that of its arrays", hint="copy or train it again")
