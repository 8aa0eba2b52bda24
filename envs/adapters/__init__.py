"""Ports as other libraries want their environments: one module per library, each an optional extra."""
