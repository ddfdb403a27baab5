"""The error that a user, a file or a server can cause.

Any other exception is a bug, and the tool prints its traceback.
"""


class InputError(Exception):
    """An error whose text names the place, the expected value and the value found."""
