"""`unisono`: the command. Each command is a function of a file here, imported when it is used.

Errors of ours are printed as one message without a traceback and end with their exit code (2: the user's mistake).
"""

import errno
import os
import signal
import sys
from contextlib import suppress

from cyclopts import App, CycloptsError, UnusedCliTokensError

from unisono import __version__
from unisono.errors import UnisonoError
from unisono.os_limits import shortage_hint
from unisono.python_error_advice import advice_on
from unisono.safe_print import accept_any_text, print, printable
from unisono.user_code.tracebacks import own_traceback

app = App(
    name="unisono",
    help="Data-parallel training in which adding processes changes nothing but the time.",
    version=__version__,
    version_flags=["--version"],
    suppress_keyboard_interrupt=False,  # ours to handle: see main
    help_epilogue="unisono COMMAND --help shows the options of a command and their defaults.",
)
COMMANDS = {
    "train": "Train a network on this machine: more ranks change nothing but the time.",
    "launch": "Start an unchanged torch script as several ranks, over shared memory.",
    "submit": "Train a recipe as a SLURM job: write its script, submit it, follow it.",
    "jobs": "List your SLURM jobs that unisono submitted.",
    "cancel": "End SLURM jobs that unisono submitted.",
    "report": "Show runs as a web page: one file that loads nothing.",
    "watch": "Show runs as a live page, in the browser or on the terminal.",
    "weights": "Show the weights of a run, or export them.",
    "data": "List, fetch and check datasets.",
    "bench": "Measure all-reduce: algorithm x size x ranks x transport.",
    "scale": "Train on increasing numbers of ranks: speed-up, efficiency, what limits it.",
    "compare": "Compare values of any option (strategies, precisions, ranks): one table, ratios, equal bits.",
    "predict": "Predict time and efficiency on clusters that you do not have.",
    "tune": "Find the ranks, threads, shards and batch with which a recipe is fastest here.",
    "profile": "Show where the time of a recipe's steps goes: phases, modules, operators.",
    "doctor": "Check this machine: what is installed, what works, how to fix the rest.",
}
"""In the order in which a user meets them. The texts stand here so that --help need not import the commands."""
EXAMPLES = {
    "train": "unisono train r2 --ranks 4 --epochs 3",
    "launch": "unisono launch --ranks 4 --replace-gloo train.py --epochs 3",
    "submit": "unisono submit r2 --ranks-per-node 4 --time 1:00:00 --follow",
    "jobs": "unisono jobs",
    "cancel": "unisono cancel 17",
    "report": "unisono report runs/mine",
    "watch": "unisono watch runs/mine --terminal",
    "weights": "unisono weights runs/mine --export weights.npz",
    "bench": "unisono bench --transports shm --sizes 64KiB,1MiB",
    "scale": "unisono scale r2 --grid 1x1,1x2 --data-dir path/to/mnist",
    "compare": "unisono compare --over strategy=sync,ddp --over ranks=1,2 --epochs 3",
    "predict": "unisono predict --nodes 2..64 --network 10gbit,50us",
    "tune": "unisono tune r4 --shards ranks --seconds 60",
    "profile": "unisono profile r4 --ranks 1 --shards 1 --batch-size 32 --batches 100",
    "doctor": "unisono doctor --json",
}
"""For each command that is a function; one that has commands of its own brings its example."""
MODULES = {"cancel": "jobs"}
"""Command -> its file, where several commands share one; the others have a file of their own name."""

USAGES = {"launch": "Usage: unisono launch [OPTIONS] SCRIPT.py | -m MODULE [ARGUMENTS ...]"}
"""Where cyclopts does not know what follows."""

for _number, (_name, _help) in enumerate(COMMANDS.items()):
    _more = {"help_epilogue": f"Example: {EXAMPLES[_name]}"} if _name in EXAMPLES else {}
    _more |= {"usage": USAGES[_name]} if _name in USAGES else {}
    app.command(f"unisono.cli.{MODULES.get(_name, _name)}:{_name}", name=_name, help=_help, sort_key=_number, **_more)
app.register_install_completion_command(
    help="Let the shell (bash, zsh, fish) complete commands and options: writes a file and a line to its start-up file."
)


def main() -> None:
    """The entry point of the command."""
    accept_any_text()
    words = sys.argv[1:]
    if words[:1] == ["launch"]:
        from unisono.cli.launch import mark_script

        words = ["launch", *mark_script(words[1:])]
    try:
        app(words, exit_on_error=False, print_error=False)
    except UnisonoError as error:
        if error.shown:
            sys.exit(error.exit_code)
        fail(str(error), error.exit_code)
    except UnusedCliTokensError as error:
        words, command = error.unused_tokens or [], " ".join(["unisono", *(error.command_chain or [])])
        refusal = f"unexpected argument{'s' * (len(words) > 1)} {', '.join(map(repr, words))}"
        fail(
            f"{refusal}\nHINT: leave {'them' if len(words) > 1 else 'it'} out; {command} --help shows what it takes", 2
        )
    except CycloptsError as error:
        fail(f"{error}\nHINT: unisono --help lists the commands, unisono COMMAND --help the options", 2)
    except KeyboardInterrupt:
        # As the shell expects of a program that Ctrl-C ended: a script around us stops too. From here on a second one
        # ends it at once.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        with suppress(OSError, ValueError):
            sys.stdout.flush()  # what was found before: a process that a signal ends does not do that
        print("\nunisono: interrupted", file=sys.stderr)
        os.kill(os.getpid(), signal.SIGINT)
    except BrokenPipeError:  # before OSError, of which it is one
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except MemoryError:
        fail("there is not enough memory\nHINT: use fewer ranks or a smaller batch, or raise the limit (ulimit -v)", 1)
    except Exception as error:
        if advice := advice_on(error):
            fail(f"{error.strerror if isinstance(error, OSError) else error}\nHINT: {advice}", 2)
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            fail(f"{error.strerror}: {str(error.filename)[:100]}...\nHINT: give a shorter name", 2)
        if isinstance(error, OSError):  # a full disk, a directory that vanished: nothing of ours
            hint = f"\nHINT: {shortage_hint(error)}" if shortage_hint(error) else ""
            fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}{hint}", 1)
        fail(own_traceback(error).rstrip(), 1)  # of the user's own code, or a bug of ours


def fail(message: str, exit_code: int) -> None:
    for name in {part for word in sys.argv[1:] for part in word.split("/") if not part.isprintable()}:
        message = message.replace(name, printable(name))  # a name with line breaks must not look like words of ours
    print(f"unisono: {message}", file=sys.stderr)
    sys.exit(exit_code)
