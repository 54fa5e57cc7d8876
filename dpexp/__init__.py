"""Experiments for differentially private training: clip norms, algorithms, and epsilons that are true."""
