"""Checkpoints of the user's own loop (`unisono.keep`).

checkpoint.py   `keep` and `LoopCheckpoint`: when a snapshot is made, written and resumed from
state.py        what a snapshot holds of the shared arrays, and whether it fits the loop
progress.py     which loops, epochs and batches are done
"""
