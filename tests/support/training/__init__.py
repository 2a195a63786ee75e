"""Snapshots, and loops that keep them."""
