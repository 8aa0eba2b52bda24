"""Vehicle routing in the paper."""
