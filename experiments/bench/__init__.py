"""Measuring: clocks and blocks, the ladder and its rungs, what comparisons of rates come to."""
