"""Training and retraining on a Ray cluster: the same models as on one machine, read, encoded and fitted elsewhere.

connecting   joins or starts a Ray
reading      many Parquet files by Ray Data
fitting      embeddings by a pool of actors, heads in a task: `predict.train.Means`
retraining   `RayWorker`, a `swarmx.adapt.worker.Worker`
luggage      directories as bytes, for nodes that share no file system
"""
