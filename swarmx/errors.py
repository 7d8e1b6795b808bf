"""The one error that a caller must tell apart: input that a person can mend."""


class BadInput(ValueError):
    """Something the user gave is wrong; the message says which file, row, field or value, and what would do.

    The command line prints the message alone and exits with 2; everything else is a defect and shows its traceback.
    """
