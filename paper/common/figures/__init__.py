"""Found by folder: each module holds figures of one experiment, or of several that belong together."""
