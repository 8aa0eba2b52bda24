"""Rows on disk, where they come from, and whether they are as they were signed."""
