"""A run: one recipe from start to verdict, wherever its ranks come from.

    run_recipe(Recipe(ranks=4))

The one idea: whoever writes the run directory and the terminal is one process: the parent of the ranks (`parent.py`),
rank 0 where another launcher started them (`rank.py`), the supervisor of the first machine of several (`nodes.py`). The
others are silent. Which of these this process is, is decided here.
"""

from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import Any

from unisono.cli.nodes import run_on_nodes
from unisono.cli.parent import as_parent
from unisono.cli.rank import as_rank
from unisono.comm.roll_call import Join
from unisono.errors import UserError
from unisono.launch.environments import detect
from unisono.launch.nodes import NodeOptions
from unisono.launch.secret import find_secret
from unisono.launch.signals import handlers_kept
from unisono.launch.slurm.supervisors import as_supervisor, step_facts
from unisono.recipe import Recipe
from unisono.trust import ANY, Trust

ONE_NODE = NodeOptions()


def run_recipe(
    recipe: Recipe,
    options: NodeOptions = ONE_NODE,
    asked_ranks: int = 0,
    *,
    watch: bool = False,
    last: bool = False,
    trust: Trust = ANY,
) -> dict[str, Any] | None:
    """Runs a recipe from start to verdict; the summary, on the process that writes it. watch: with a live page.
    trust: which of its code may run.

    Alone, this process starts the ranks. Started by mpirun, torchrun or srun, it is one of them. With `options` of
    several machines it is the supervisor of one of them. asked_ranks: what the user gave on the command line. last:
    this process ends with the run, so signals that come too late stay ignored.
    """
    placement = detect()
    with nullcontext() if last else handlers_kept(), ExitStack() as pages:  # left after the run directory is complete
        beside = pages if watch else None
        here = as_supervisor(options, placement, step_facts(), recipe.threads)
        if here is not None and here.several:
            return run_on_nodes(recipe, here, beside, placement.restarts, trust)
        if options.several:
            if placement.source != "alone":
                raise UserError(
                    f"--num-nodes {options.num_nodes}, but {placement.source} started this as one of {placement.size}",
                    hint=f"leave --num-nodes, --node-id and --main-address out: {placement.source} says who is where",
                )
            return run_on_nodes(recipe, options, beside, trust=trust)
        if placement.size == 1:
            recipe = replace(recipe, ranks=options.ranks_per_node or recipe.ranks)
            return as_parent(recipe, placement.restarts, beside, trust)
        note = f"Note: --ranks {asked_ranks} has no effect: {placement.source} started {placement.size} ranks."
        notes = [note] if asked_ranks not in (0, placement.size) else []
        secret = find_secret(options.secret_file) if options.secret_file else None
        join = Join(interface=options.interface, timeout_s=options.join_timeout, secret=secret)
        return as_rank(recipe, placement, join, notes, beside, trust)
