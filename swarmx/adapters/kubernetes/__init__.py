"""Kubernetes without its client library: endpoints of an InferencePool, one Lease, the scale of a workload."""
