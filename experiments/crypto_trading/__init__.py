"""Crypto trading: its settings, the steps it is compared in, experiments of its own."""
