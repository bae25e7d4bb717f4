"""Schedules in other tools' formats: out as `triton.Config` lists, vLLM's files, tables and T4; in as first candidates of a search."""
