"""A network of the user's own that is edited on the first of two machines, after both have said what they mean and
before either has read it: by the function that makes the data, for data come first."""

from pathlib import Path

OPTIONS = ["--model", "net.py:make", "--data", "data.py:make"]
REFUSAL = "the code of --model net.py:make is not the same everywhere: '"
_NET = """
import torch
def make(): return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
"""
_DATA = """
import numpy as np
from pathlib import Path
def make():
    if Path.cwd().name == "0":
        Path("net.py").write_text(Path("net.py").read_text() + "# edited")
    return {"train_x": np.eye(64, dtype=np.float32), "train_y": np.arange(64) % 2}
"""


def machines(folder: Path) -> list[Path]:
    """Their directories, 0 and 1, with the same in both."""
    places = [folder / "0", folder / "1"]
    for place in places:
        place.mkdir()
        (place / "net.py").write_text(_NET)
        (place / "data.py").write_text(_DATA)
    return places
