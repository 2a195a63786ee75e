"""digits: 1797 handwritten digits of 8 x 8 pixels, bundled, so that a first run needs no download.

    python -c "from unisono.data.sources import load; print(load('digits').train_x.shape)"

Where they come from, and how the test part was chosen, is in files/digits.txt.
"""

import hashlib
from pathlib import Path

from unisono.data.arrays import load_arrays
from unisono.data.raw import Raw
from unisono.errors import UserError

FILE = Path(__file__).parent / "files" / "digits.npz"
SHA256 = "9f9511545007507924a2f50e0c043527a264abf1eaf258f47c011dcd701bc895"


def load_digits() -> Raw:
    """The bundled images; a `UserError` if the installation is damaged."""
    try:
        found = hashlib.sha256(FILE.read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(f"{FILE}: {error.strerror}", hint="install unisono again") from None
    if found != SHA256:
        raise UserError(f"{FILE} is damaged: SHA-256 {found}, expected {SHA256}", hint="install unisono again")
    return Raw("digits", load_arrays(FILE).arrays, classes=10, normalise="unit")
