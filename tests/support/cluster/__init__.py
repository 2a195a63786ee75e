"""Several machines on this one: name spaces, a real SLURM."""
