"""Parts of algorithms: networks, action distributions, normalisers, noise, estimators."""
