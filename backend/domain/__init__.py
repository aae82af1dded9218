"""The words of Serpens as values: no I/O, only the standard library, numpy and pydantic."""
