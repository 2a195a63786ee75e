"""Ranks, supervisor and memory in one process, in any order of memory accesses."""
