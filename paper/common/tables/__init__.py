"""Found by folder: each module holds tables of one experiment, or of several that belong together."""
