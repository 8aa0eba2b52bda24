"""Weights of the learned oracle, and beside each where they are from."""
