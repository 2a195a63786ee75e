"""Programs that stand in for real ones: small scripts in a folder that a test puts on its PATH."""

from pathlib import Path


def put_command(folder: Path, name: str, body: str, shell: str = "#!/bin/bash") -> Path:
    (folder / name).write_text(f"{shell}\n{body}\n")
    (folder / name).chmod(0o755)
    return folder / name
