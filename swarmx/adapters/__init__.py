"""What connects the scheduler to the world: each adapter carries out its decisions somewhere else."""
