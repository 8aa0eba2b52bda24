"""The vehicular edge: its settings, the slots it is compared in, experiments of its own."""
