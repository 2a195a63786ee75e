"""Activations by name, torch's: the same names as `models/activations.py` has for NumPy.

ACTIVATIONS["gelu"]()
"""

from torch import nn

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "gelu": nn.GELU}
