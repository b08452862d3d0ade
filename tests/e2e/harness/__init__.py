"""A real Kubernetes control plane on loopback, and stand-ins for what is not there."""
