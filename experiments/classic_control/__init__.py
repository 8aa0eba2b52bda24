"""Gymnasium's classic control: settings of each environment, states to compare it from."""
