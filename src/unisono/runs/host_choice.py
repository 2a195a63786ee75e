"""Which host this process is for a run: the parent of its ranks, one rank, or the supervisor of one machine.

recipe, host = choose_host(Recipe.from_options(ranks=4), MachineOptions(), confirm=Trust.check)
"""

from collections.abc import Callable

from unisono.comm.topology.rendezvous import RendezvousOptions
from unisono.environment.variables import detect
from unisono.errors import UserError
from unisono.launch.machine_options import MachineOptions
from unisono.launch.secret import find_secret
from unisono.launch.slurm.supervisors import as_supervisor, step_facts
from unisono.recipe import Recipe
from unisono.runs.hosts.base import Host
from unisono.runs.hosts.launched import LaunchedHost
from unisono.runs.hosts.machines import MultiMachineHost
from unisono.runs.hosts.supervised import SupervisedHost
from unisono.trust import Trust


def choose_host(
    recipe: Recipe,
    options: MachineOptions,
    asked_ranks: int = 0,
    confirm: Callable[[Trust, Recipe], object] = Trust.check,
) -> tuple[Recipe, Host]:
    """The host, and the recipe with the ranks that it has.

    Alone, this process starts the ranks. Started by mpirun, torchrun or srun, it is one of them. With `options` of
    several machines it is the supervisor of one of them. asked_ranks: what the user gave on the command line. confirm:
    as in `SupervisedHost`.
    """
    placement = detect()
    here = as_supervisor(options, placement, step_facts(), recipe.ranks.threads)
    if here is not None and here.several:
        return recipe, MultiMachineHost(here, placement.restarts)
    if options.several:
        if placement.source != "alone":
            raise UserError(
                f"--num-nodes {options.num_nodes}, but {placement.source} started this as one of {placement.size}",
                hint=f"leave --num-nodes, --node-id and --main-address out: {placement.source} says who is where",
            )
        return recipe, MultiMachineHost(options)
    if placement.size == 1:
        recipe = recipe.with_options(ranks=options.ranks_per_node or recipe.ranks.count)
        return recipe, SupervisedHost(placement.restarts, confirm)
    note = f"Note: --ranks {asked_ranks} has no effect: {placement.source} started {placement.size} ranks."
    notes = [note] if asked_ranks not in (0, placement.size) else []
    secret = find_secret(options.secret_file) if options.secret_file else None
    join = RendezvousOptions(interface=options.interface, timeout_s=options.join_timeout, secret=secret)
    return recipe, LaunchedHost(placement, join, notes)
