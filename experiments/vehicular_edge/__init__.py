"""The vehicular edge: its settings, the slots it is compared in, experiments of its own."""

LIKELIEST = "_mean"  # behind the name of an agent that takes its likeliest actions
