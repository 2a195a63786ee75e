"""When a run makes snapshots and how it restores one. `storage/snapshots` has the files."""
