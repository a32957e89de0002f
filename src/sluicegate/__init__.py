"""Sluicegate: a self-hosted gateway for LLM APIs that streams, meters and bills exactly."""

__version__ = "0.1.0"
