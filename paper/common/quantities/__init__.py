"""Found by folder: each module holds quantities of one experiment, or of several that belong together."""
