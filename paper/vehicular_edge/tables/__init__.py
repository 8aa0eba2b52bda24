"""Found by folder."""
