"""One slot of B environments as array code on NumPy or CuPy, which scales, policies and arrays.py are built on."""
