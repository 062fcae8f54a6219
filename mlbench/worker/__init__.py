"""The worker: an island that imports nothing of the rest, runs under Python 3.8 and can be mounted alone."""
