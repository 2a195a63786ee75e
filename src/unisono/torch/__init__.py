"""The backend "unisono" of torch.distributed: unchanged DDP scripts over shared memory.

    import unisono.torch                                      # registers it; `unisono launch` does without this line
    torch.distributed.init_process_group("unisono")

`process_group.py` is what torch calls, with `group_reductions.py`, `group_transfers.py` and what both start with,
`group_operations.py`. `collectives.py` says how results come about. `operation_queue.py` runs what is under way; torch
sees that as a `work.py`. Data pass through `machine_memory.py`, `machine_links.py` and `messages.py`. How ranks find
each other is in `rendezvous.py`, what torch loads by itself in `autoload.py`, and why errors are RuntimeErrors, too, in
`torch_errors.py`. `compiler_exclusion.py` keeps `torch.compile` out.
"""

from unisono.torch.autoload import register

register()
