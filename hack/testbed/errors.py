"""The one error of the testbed: something that the reader of the message can put right."""


class TestbedError(Exception):
    """What went wrong and what would help, in a sentence or two."""

    __test__ = False  # the name is not a test for pytest to collect
