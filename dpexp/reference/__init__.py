"""What the papers print: their tables as CSV files beside this one, and the features behind each data set."""

from importlib.resources import files
from importlib.resources.abc import Traversable

import pandas as pd

# Section 5.2 and Appendix A of paper L. Other features of the same data are another experiment.
PAPER_EXTRACTORS = {
    "caltech256": "resnet34",
    "food101": "resnet34",
    "cifar100": "resnet18",
    "cifar10": "resnet18",
    "tweeteval_emoji": "distilbert",
    "emotion": "distilbert",
    "emnist": "raw",
    "fashion_mnist": "raw",
}


def clipnorm_tables() -> Traversable:
    """Paper L's Tables 3 to 7: table,dataset,model,epsilon,method,clip_norm,percentile,accuracy_mean,accuracy_std."""
    return files(__name__) / "clipnorm_tables.csv"


def selective_tables() -> pd.DataFrame:
    """Paper S's Tables 1 to 5: table,dataset,method,attack,epsilon,metric,value; no epsilon where it is non-private."""
    with (files(__name__) / "selective_release_tables.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)
