"""Classic control in the paper."""
