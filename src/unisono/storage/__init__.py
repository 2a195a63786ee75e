"""Storage: the files that a run leaves on disk, and how they are read back. `runs/` decides when they are written.

rundir.py              the run directory, its lock and its contract; run_files.py: its files and their lines
retrying_writer.py     files that grow during a run, on a disk that may be full; fallback_writer.py: another disk
weights.py             weights.safetensors and its exports; model_card.py: how to use the weights
snapshots/             snapshots: manifest, arrays, facts, atomic writing, verified reading
background_writer.py   a process or a thread that writes a snapshot while training continues
resume.py              which snapshot a run resumes from, and whether the recipe is the same; path_resolution.py: files
"""
