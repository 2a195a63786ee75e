"""The sections of a report, in their order: one file each, with `section(runs) -> Section | None`.

The one idea: a section looks at the records of the runs and has nothing to say where they have none; so one page serves
a training, several of them, and studies. Adding one is adding a file and its name here.
"""

SECTIONS = (
    "verdict",
    "problems",
    "differences",
    "curves",
    "time",
    "contributions",
    "throughput",
    "energy",
    "staleness",
    "events",
    "bench",
    "scale",
    "compare",
    "profile",
    "predict",
    "tune",
    "reproduce",
    "recipe",
    "machine",
    "logs",
)
