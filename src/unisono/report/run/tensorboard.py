"""Events for TensorBoard, written as a run goes on (`unisono train --tensorboard`).

    with closing(EventFile()) as events: events.add(record, Path("runs/mine/tensorboard"))
    tensorboard --logdir runs/mine/tensorboard

The one idea: a record is a few dozen numbers an epoch, so the process that writes the run directory writes it too, at
once, or once a second if epochs are shorter. That process forks ranks and must not have threads, which the usual
SummaryWriters start; tensorboardX has the layers below them, and needs protobuf and little else.

Limits: numbers only, a value an epoch. A run that is resumed adds a file; epochs that it did again are there twice, and
TensorBoard shows the later ones over the earlier.
"""

import io
import os
import platform
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import final

from unisono.errors import UserError
from unisono.files import append_file, create_file, make_folder, write_all
from unisono.messages.rank_reports import EpochRecord
from unisono.optional_packages import how_to_install

PAUSE_S = 1.0
"""Between two writings, for each of them waits for the disk."""
RANK_TIMES = ("compute_s", "data_s", "wait_s", "update_s")


@final
class EventFile:
    """A file of events, made when there is something to write; after trouble with the disk, another one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """A `UserError` where tensorboardX is not installed."""
        try:
            from tensorboardX.record_writer import masked_crc32c
        except ImportError:
            raise UserError(
                "--tensorboard needs tensorboardX, which is not installed",
                hint=f"{how_to_install('tensorboard')}, or leave --tensorboard out",
            ) from None
        self._clock, self._written = clock, float("-inf")
        self._checksum: Callable[[bytes], int] = masked_crc32c
        self._writer: io.FileIO | None = None
        self._files = 0
        self._unwritten: list[bytes] = []
        self._folder = Path()

    def add(self, record: EpochRecord, folder: Path) -> None:
        """One epoch, for a file in `folder`. After an OSError it is kept, and written later."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars(record).items()]
        event = Event(wall_time=time.time(), step=record.metrics["epoch"], summary=Summary(value=values))
        self._unwritten.append(event.SerializeToString())
        self._folder = folder
        if self._clock() >= self._written + PAUSE_S:
            self._write()

    def close(self) -> None:
        """Writes what is left; an OSError if that cannot be done. More may be added afterwards, to another file."""
        if self._unwritten:
            self._write()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _write(self) -> None:
        try:
            if self._writer is None:
                self._writer = self._open()
            write_all(self._writer, b"".join(map(self._framed, self._unwritten)))
            os.fsync(self._writer.fileno())
        except OSError:
            # What comes after half a record could not be read: this file ends here.
            writer, self._writer = self._writer, None
            if writer is not None:
                with suppress(OSError):
                    writer.close()
            raise
        self._unwritten.clear()
        self._written = self._clock()

    def _open(self) -> io.FileIO:
        from tensorboardX.proto.event_pb2 import Event

        run = self._folder.parent
        make_folder(self._folder, within=run)
        # Process and number are part of the name: two files within a second are two files.
        self._files += 1
        name = f"events.out.tfevents.{time.time():.0f}.{platform.node()}.{os.getpid()}.{self._files}"
        begin = Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString()
        # Not by tensorboardX's RecordWriter, which would follow a link.
        create_file(self._folder / name, self._framed(begin), within=run)
        return append_file(self._folder / name, within=run)

    def _framed(self, data: bytes) -> bytes:
        """A record of TensorBoard's: length, checksum, data, checksum."""
        length = struct.pack("<Q", len(data))
        return b"".join(
            (length, struct.pack("<I", self._checksum(length)), data, struct.pack("<I", self._checksum(data)))
        )


def scalars(record: EpochRecord) -> dict[str, float]:
    """Tags and values: loss/train, accuracy/test, wait_s/rank 0. What comes before the slash is a chart's place."""
    found = {}
    for name, value in record.metrics.items():
        part, _, what = name.rpartition("_")
        if value is not None and name != "epoch":
            scored = what in ("loss", "accuracy")
            found[f"{what}/{part}" if scored else f"run/{name}"] = float(value)
    for name in RANK_TIMES:
        found |= {f"{name}/rank {rank}": float(entry[name]) for rank, entry in enumerate(record.ranks)}
    return found
