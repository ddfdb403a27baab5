"""What a user, a file or a server can get wrong; everything else is a bug and keeps its traceback."""


class InputError(Exception):
    """Says what is wrong, where, what was expected and what was found."""
