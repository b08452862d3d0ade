"""Real processes on loopback, and everything that can happen to them and to the ways between."""
