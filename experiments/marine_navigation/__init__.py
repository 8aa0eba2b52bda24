"""Marine navigation: its settings, the steps it is compared in, experiments of its own."""
