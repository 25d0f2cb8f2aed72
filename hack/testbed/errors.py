"""The error of the testbed: the message says what is wrong and what helps."""


class TestbedError(Exception):
    """An error with a message for the user."""

    __test__ = False  # the name is not a test for pytest to collect
