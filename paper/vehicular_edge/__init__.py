"""Vehicular edge computing in the paper."""
