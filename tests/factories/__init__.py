"""What tests make: valid by default, so that a test shows only what it is about."""
