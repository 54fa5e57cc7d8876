"""`python tests/tiny_run.py OVERRIDES`: the real command line on the tests' small data set."""

from conftest import make_features

import dpexp.features
from dpexp.run import main

dpexp.features.load = lambda config, progress=None: make_features()

if __name__ == "__main__":
    main()
