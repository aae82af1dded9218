"""Turn a dataset snapshot into an evaluated checkpoint; serve the small model."""
