"""Accelerate: whether `--strategy accelerate`, which compares with it, can be imported."""

from importlib import import_module, metadata
from importlib.util import find_spec

from unisono.doctor.finding import Finding
from unisono.user_code.extras import how_to_install

INSTALL = how_to_install("accelerate")


def probe() -> list[Finding]:
    """For comparisons alone."""
    if find_spec("accelerate") is None:
        told = "not installed; it is for --strategy accelerate, a comparison"
        return [Finding("Accelerate", "missing", told, INSTALL)]
    version = metadata.version("accelerate")
    try:
        import_module("unisono.strategies.external.accelerate")
    except Exception as error:  # whatever its import meets is what the user wants to know
        told = f"Accelerate {version} cannot be imported: {type(error).__name__}: {error}"
        return [Finding("Accelerate", "warning", told, INSTALL, {"version": version})]
    return [Finding("Accelerate", "ok", f"Accelerate {version}", facts={"version": version})]
