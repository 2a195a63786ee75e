"""UnisonoProcessGroup: what torch.distributed calls, over the memory that ranks of a machine share.

    import unisono.torch
    torch.distributed.init_process_group("unisono")          # under torchrun, mpirun, srun, unisono launch

Its one idea: torch's dozens of methods are thin: they flatten tensors, start a generator of `collectives.py`, and hand
its `Work` back. Results are equal on every rank, and for two ranks those of gloo, bit for bit.

Limits: CPU tensors. torch's monitored_barrier accepts gloo alone; here every collective names the ranks that are
missing.
"""

from typing import final

import torch
from torch.distributed import Store  # type: ignore[attr-defined]  # public all the same

from unisono.errors import UserError
from unisono.torch.calls import call
from unisono.torch.compiler_exclusion import not_compiled
from unisono.torch.group_reductions import GroupReductions
from unisono.torch.group_transfers import GroupTransfers
from unisono.torch.machine_memory import Steps
from unisono.torch.work import Operation

BACKEND = "unisono"


@final
@not_compiled
class UnisonoProcessGroup(GroupReductions, GroupTransfers):
    """One rank's side of a process group: what torch asks beside operations."""

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def name(self) -> str:
        return BACKEND

    getBackendName = name

    def _get_backend_name(self) -> str:
        return BACKEND

    def get_group_store(self) -> Store:
        return self._store

    def _set_sequence_number_for_group(self) -> None:
        pass

    # torch asks some of these from C++, some from Python; a group of its own kind would keep them in a backend

    def setGroupName(self, name: str) -> None:
        self._group_name = name

    def getGroupName(self) -> str:
        return self._group_name

    def setGroupDesc(self, desc: str) -> None:
        self._group_desc = desc

    def getGroupDesc(self) -> str:
        return self._group_desc

    _set_group_name, _set_group_desc = setGroupName, setGroupDesc
    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    def _get_backend(self, device: torch.device) -> "UnisonoProcessGroup":
        if device.type != "cpu":
            raise UserError(f"the backend unisono has nothing for {device}", hint="it is for CPUs; GPUs use nccl")
        return self

    supports_coalescing = supports_splitting = supports_time_estimate = False

    def _start_coalescing(self, device: torch.device) -> None:
        """Nothing to do: collectives run one after the other anyway."""

    def _end_coalescing(self, device: torch.device) -> Operation:
        """A work that is done when all collectives that were started before are."""

        def steps() -> Steps:
            yield from ()

        return self._queue.start(steps(), call("coalesced"), self._timeout_s, [], background=True)
