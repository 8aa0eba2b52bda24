"""Crypto trading in the paper."""
