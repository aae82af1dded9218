"""One sentence each: a service does one thing in one transaction."""
