"""Surroundings of any algorithm: the training loop, its log and checkpoints, the command line, evaluation."""
