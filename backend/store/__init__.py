"""Rows and blobs: the only place that speaks SQL."""
