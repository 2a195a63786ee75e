"""Optimizers beside those of torch."""
