"""What algorithms are made of: networks, action distributions, normalisers, noise, estimators."""
