"""Marine navigation in the paper."""
