"""Turn prompts into masks, freeze judged work into datasets, export masks."""
