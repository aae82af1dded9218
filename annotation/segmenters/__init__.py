"""The bodies that turn prompts into masks. torch is imported when a body first needs it, never with the module."""
