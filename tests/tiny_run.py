"""`python tests/tiny_run.py OVERRIDES`: the real command line on the tests' small data set."""

import signal

from conftest import make_features

import dpexp.features
from dpexp.run import main

dpexp.features.load = lambda config, progress=None: make_features()

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which the background jobs of a shell are told to ignore
    main()
