"""Snapshots as files: written atomically, verified when read. `runs/snapshots` decides when."""
