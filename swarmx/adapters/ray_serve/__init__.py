"""Ray Serve: request router, queue owner, replica statistics and autoscaling policies."""
