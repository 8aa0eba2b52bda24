"""Features of the libraries that have these tasks."""

import pandas as pd

from lockstep.paper import families
from lockstep.paper.tables import table


@table("What the libraries offer for the five classic tasks, each looked up in the version named.")
def peer_features(datasets):
    declared = families.read("classic_control", "features.yaml")
    headings = {library: f"{library}, {about['version']}" for library, about in declared["libraries"].items()}
    checked = {"feature": "looked up in"} | {
        library: about["checked"] for library, about in declared["libraries"].items()
    }
    return pd.DataFrame([*declared["features"], checked])[["feature", *headings]].rename(columns=headings)
