"""The packages: folders of the repository, under the name `lockstep`. All else is in pyproject.toml."""

from setuptools import find_packages, setup

FOLDERS = ("agents", "envs", "experiments", "paper")
FOUND = [package for folder in FOLDERS for package in find_packages(include=[folder, f"{folder}.*"])]

setup(
    packages=["lockstep", *(f"lockstep.{package}" for package in FOUND)],
    package_dir={"lockstep": "lockstep"} | {f"lockstep.{folder}": folder for folder in FOLDERS},
)
