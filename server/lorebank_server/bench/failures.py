"""What keeps a measurement from being made; the messages say what to do."""


class BenchError(Exception):
    """Nothing was measured."""
