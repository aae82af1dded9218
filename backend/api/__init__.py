"""HTTP: parse, call a service, reply."""
