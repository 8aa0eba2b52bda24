"""The family of boats between piers: one environment so far."""
