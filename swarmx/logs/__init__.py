"""Execution logs: tables of call records, importers of other formats, checks, workflows to replay."""
