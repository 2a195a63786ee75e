"""Strategies beside a plain loop and beside each other."""
