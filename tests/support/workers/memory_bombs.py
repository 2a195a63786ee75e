"""Loads the data that its arguments name within 1 GiB of address space, and prints what came of each.

python tests/support/workers/memory_bombs.py mine.npz synthetic-text:characters=1000000000000
"""

import resource
import sys

from unisono.data.sources import load
from unisono.errors import UserError

resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
for spec in sys.argv[1:]:
    try:
        print("loaded", load(spec).train_x.shape)
    except UserError as error:
        print("refused", str(error).partition("\n")[0])
