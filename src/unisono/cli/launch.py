"""`unisono launch`: starts an unchanged torch script as several ranks, over shared memory."""

import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated

from cyclopts import Parameter

from unisono.launch.script_launcher import launch_script
from unisono.launch.script_options import ScriptOptions

_DEFAULTS = ScriptOptions()


def launch(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    options: Annotated[ScriptOptions, Parameter(name="*")] = _DEFAULTS,
) -> None:
    """Start an unchanged torch script as several ranks: unisono launch [OPTIONS] SCRIPT.py [ARGUMENTS ...]

    The script sees the variables that torchrun sets. init_process_group("unisono"), or without a name, uses shared
    memory between the ranks of a machine. What follows the script belongs to it. Where mpirun or srun starts this
    command as several ranks, each runs the script.
    """
    sys.exit(launch_script(command, options))


def mark_script(words: Sequence[str]) -> list[str]:
    """The words of the command line with "--" before the script: what follows it is its own, also --ranks."""
    valued = {f"--{entry.name.replace('_', '-')}" for entry in fields(ScriptOptions) if entry.type is not bool}
    number = 0
    while number < len(words) and words[number].startswith("-") and words[number] not in ("-m", "--"):
        number += 2 if words[number] in valued else 1
    return [*words] if words[number : number + 1] == ["--"] else [*words[:number], "--", *words[number:]]
