"""The sections of a report, in their order: functions `section(runs) -> Section | None`, in files by what they show.

The one idea: a section looks at the records of the runs and is None where they have nothing to show; so one page serves
a training, several of them, and studies. To add one, write a function and add its row here.
"""

SECTIONS = {
    "verdict": "outcome_and_advice:section",
    "problems": "problems_and_logs:problems",
    "differences": "recipe_and_machine:differences",
    "curves": "epoch_curves:curves",
    "time": "rank_work:times",
    "contributions": "rank_work:contributions",
    "throughput": "epoch_curves:throughput",
    "energy": "energy:section",
    "staleness": "staleness:section",
    "events": "events:section",
    "bench": "bench:section",
    "scale": "scale:section",
    "compare": "compare:section",
    "profile": "profile:section",
    "predict": "predict:section",
    "tune": "tune:section",
    "reproduce": "recipe_and_machine:commands",
    "recipe": "recipe_and_machine:recipes",
    "machine": "recipe_and_machine:machines",
    "logs": "problems_and_logs:logs",
}
"""Name -> "module:function" in this package; imported when a page is made."""
