"""Experiments for differentially private training: clip norms, algorithms, and epsilons that are true."""

__version__ = "0.1.0"
