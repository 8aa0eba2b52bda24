"""Vehicle routing: its settings, and the days it is compared in."""
