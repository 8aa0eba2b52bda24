"""Scenarios: markets, generated or read."""

from .bootstrap import bootstrap
from .file import load, save, with_rules
from .generator import SETS, generate
from .importers import alpaca, binance
from .market import Market

__all__ = ["SETS", "Market", "alpaca", "binance", "bootstrap", "generate", "load", "save", "with_rules"]
