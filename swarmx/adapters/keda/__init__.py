"""KEDA's external scaler: wanted replicas as a metric whose target is one per replica."""
