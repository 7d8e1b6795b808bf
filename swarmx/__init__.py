"""Learned, distribution-aware, workflow-aware scheduling for agentic LLM serving.

Start with `swarmx.scheduler.Scheduler`; `swarmx.types` holds what goes in and out.
"""

__version__ = "0.1.0"
