"""A batched environment compared with an original: python -m lockstep.experiments.verify FACTORY --original ID.

For ports of anybody's. docs/verify.md says how it is used and what each check asks.
"""
