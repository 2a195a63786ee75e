"""Answers of SLURM's programs, whole and damaged."""
