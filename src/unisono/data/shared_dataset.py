"""One copy of the data per node, for ranks that were not forked from a parent that had loaded them.

The one idea: the first rank of each node loads; the arrays go into one segment, which the others attach to. A failure
anywhere is told to all ranks before any goes on, so each rank ends with the message and none waits.

    dataset = load_once(comm, lambda: load("mnist"))       # called by every rank of comm

In the segment: the length of a header (int64), the header (JSON: name, classes, shape, what was done to samples, and
each array's place), then the arrays, each on a border of 64 bytes.

Limits: while the first rank loads, the others wait for at most the communicator's time-out: on a slow network fetch the
files first (`unisono data fetch`). During the copy the loading rank holds the data twice.
"""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from unisono.aligned import ALIGNMENT_BYTES
from unisono.arena.memory.segment import Segment
from unisono.comm.base import Communicator
from unisono.comm.broadcast_object import failed, gather_objects
from unisono.comm.topology.shared_machine import node_colour, share_segment
from unisono.data.dataset import Dataset, freeze
from unisono.data.normalisation import Normalisation
from unisono.errors import CommError, UserError


def load_once(comm: Communicator, load: Callable[[], Dataset]) -> Dataset:
    """Calls `load` on the first rank of each node; the dataset on every rank. Called by every rank of `comm`."""
    members = _members(comm)
    dataset = failure = None
    if comm.rank == members[0]:
        try:
            dataset = load()
        except Exception as error:  # the others wait to hear of it
            failure = error
    return _share(comm, members, dataset, failure)


def share(comm: Communicator, dataset: Dataset | None) -> Dataset:
    """The `dataset` that the first rank of each node gives; others may give None. Called by every rank of `comm`."""
    members = _members(comm)
    failure = None
    if comm.rank == members[0] and dataset is None:
        failure = UserError(
            f"rank {comm.rank} is the first of its node and gave no dataset",
            hint="load the data on the first rank of each node, or use load_once",
        )
    return _share(comm, members, dataset, failure)


def _share(comm: Communicator, members: list[int], dataset: Dataset | None, failure: Exception | None) -> Dataset:
    if comm.size == 1 and dataset is not None:
        return freeze(dataset)
    mine = dataset if comm.rank == members[0] else None
    segment = None
    try:
        header, nbytes = _plan(mine) if mine is not None else (b"", 0)
        segment = share_segment(comm, members, nbytes)
        if mine is not None:
            _write(segment, header, mine)
    except Exception as error:  # share_segment raises after its exchange: the others are on their way to _tell
        failure = failure or error
    try:
        _tell(comm, failure)  # and when everyone has told, everything is written
        if segment is None:
            raise CommError("there is no shared memory, and nobody said why")
        return _read(segment)
    finally:
        if segment is not None:
            segment.close()  # the views keep the memory


def _members(comm: Communicator) -> list[int]:
    """The ranks on this rank's node, ascending."""
    colours = comm.all_gather(np.array([node_colour(comm)]))[:, 0]
    return [rank for rank in range(comm.size) if colours[rank] == colours[comm.rank]]


def _tell(comm: Communicator, failure: Exception | None) -> None:
    """Returns if no rank failed; else every rank raises what the first of them that failed has to say."""
    try:
        found = gather_objects(comm, None if failure is None else failed(failure))
    except CommError:
        if failure is not None:  # it is the cause of what happened to the communicator
            raise failure from None
        raise
    for rank, one in enumerate(found):
        if one is not None:
            raise failure if rank == comm.rank and failure is not None else one.error(f"rank {rank}")


def _plan(dataset: Dataset) -> tuple[bytes, int]:
    """The header, and how many bytes it and the arrays take."""
    arrays, end = {}, 0
    for name, array in dataset.arrays().items():
        arrays[name] = {"offset": end, "dtype": array.dtype.str, "shape": array.shape}
        end = _aligned(end + array.nbytes)
    header = {
        "name": dataset.name, "classes": dataset.classes, "shape": dataset.shape,
        "normalisation": dataset.normalisation.plain, "vocabulary": dataset.vocabulary, "arrays": arrays,
    }  # fmt: skip
    packed = json.dumps(header).encode()
    return packed, _start(len(packed)) + end


def _write(segment: Segment, header: bytes, dataset: Dataset) -> None:
    segment.words(0, 1)[0] = len(header)
    segment.bytes(8, len(header))[:] = header
    for name, view in _views(segment).items():
        view[...] = getattr(dataset, name)


def _read(segment: Segment) -> Dataset:
    header = _header(segment)
    found = Dataset(
        header["name"],
        **_views(segment),
        classes=header["classes"],
        shape=tuple(header["shape"]),
        normalisation=Normalisation.read(header["normalisation"]),
        vocabulary=header["vocabulary"],
    )
    return freeze(found)


def _views(segment: Segment) -> dict[str, np.ndarray]:
    start = _start(segment.words(0, 1)[0])
    return {
        name: segment.array(start + place["offset"], math.prod(place["shape"]), np.dtype(place["dtype"])).reshape(
            place["shape"]
        )
        for name, place in _header(segment)["arrays"].items()
    }


def _header(segment: Segment) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bytes(segment.bytes(8, segment.words(0, 1)[0])))
    return found


def _start(header_bytes: int) -> int:
    """Where the arrays begin."""
    return _aligned(8 + header_bytes)


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
