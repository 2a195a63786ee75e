"""Runs command lines of example scripts one after the other in one process: torch is slow to import.

python example_runner.py "examples/05_gpt.py --steps 20" examples/01_unisono.py

What each prints stands under a line "=== COMMAND LINE".
"""

import runpy
import shlex
import sys

if __name__ == "__main__":
    for line in sys.argv[1:]:
        print(f"=== {line}", flush=True)
        words = sys.argv = shlex.split(line)
        runpy.run_path(words[0], run_name="__main__")
        sys.stdout.flush()  # ranks are forked: they must not inherit what is yet to be written
