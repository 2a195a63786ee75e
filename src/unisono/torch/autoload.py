"""What torch calls when it is imported: registers the backend, and extends env:// to ranks of mpirun and srun. It
imports nothing more until it is used.

torch 2.5 and newer load the entry points of the group `torch.backends`. So `init_process_group("unisono")` works
wherever unisono is installed, without a line in the script. TORCH_DEVICE_BACKEND_AUTOLOAD=0 turns that off; then
`import unisono.torch` registers the backend.
"""

import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

BACKEND = "unisono"


def register() -> None:
    """May be called again; never raises, for `import torch` would fail with it."""
    try:
        _register()
    except Exception as error:  # half an installation, or no NumPy: only scripts that want this backend need know
        sys.stderr.write(f"unisono: the backend {BACKEND} is not there: {type(error).__name__}: {error}\n")


def _register() -> None:
    import torch.distributed as dist

    from unisono.environment.os_environ import backend_wishes

    if not dist.is_available() or BACKEND in dist.Backend.backend_list:
        return
    dist.Backend.register_backend(BACKEND, create, devices=["cpu"])
    # Not `dist.rendezvous`, which is a function of that module.
    handlers = sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers
    handlers["env"] = partial(env_rendezvous, handlers["env"])
    launched, replace_gloo = backend_wishes()
    if launched:  # init_process_group() without a name
        dist.Backend.default_device_backend_map["cpu"] = BACKEND
    if replace_gloo:
        from torch.distributed import distributed_c10d

        from unisono.torch.process_group import UnisonoProcessGroup

        # Where torch looks up the class behind the name "gloo". unisono's own uses of gloo take it from elsewhere.
        distributed_c10d.ProcessGroupGloo = UnisonoProcessGroup  # type: ignore[misc]


def env_rendezvous(usual: Callable[..., Iterator[Any]], url: str, **options: Any) -> Iterator[Any]:
    """torch's env:// rendezvous; also where mpirun or srun has started the ranks, which do not set its variables."""
    from unisono.environment.os_environ import fill_torch_variables

    fill_torch_variables()
    return usual(url, **options)


def create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """The process group of one rank, as torch asks for it."""
    from unisono.torch.process_group import UnisonoProcessGroup

    return UnisonoProcessGroup(store, rank, size, timeout)
