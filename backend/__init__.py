"""Keep studies, traces, masks, feedback and rounds; run the agent; answer HTTP."""
