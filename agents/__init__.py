"""Learning algorithms on batched environments, one file each."""
