"""Runs: executing a recipe from its start to its verdict. What a run leaves on disk is in `storage/`.

train_function.py       `unisono.train`: a run from Python
recipe_source.py        where the recipe comes from
lifecycle.py            the steps of every run: connect, resume, prepare, record, train, finish; the choice of the mode
run_modes/              the modes: supervised, launched, several machines
supervised_training.py  ranks that we start and replace; launched_training.py: ranks of mpirun, torchrun or srun
recorder.py             what is shown and written while it runs; energy_monitor.py, live_page.py: beside it
snapshots/              when snapshots are made and restored; loop_checkpoint/: the same for the user's own loop
early_end.py            how a run ends early
separate_process.py     a run in a process of its own, for notebooks
"""
