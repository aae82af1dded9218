"""The agent: one loop for the clinic and for rollouts, its tools, its grammar and the policies that speak in it."""
