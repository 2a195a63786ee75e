"""Runs: executing a recipe from its start to its verdict. What a run leaves on disk is in `storage/`.

training.py          `unisono.train`: a run from Python
recipe_source.py     where the recipe comes from; start.py: where the run starts
course.py            the steps of every run: connect, resume, prepare, record, train, finish
host_choice.py       which host this process is; hosts/: supervised, launched, several machines
supervised_run.py    ranks that we start and replace; launched_run.py: ranks that mpirun, torchrun or srun started
recorder.py          what is shown and written while it runs; energy_monitor.py, live_page.py: beside it
snapshots/           when snapshots are made and restored; loop_checkpoint/: the same for the user's own loop
failures.py          how a run ends early
own_process.py       a run in a process of its own, for notebooks
"""
