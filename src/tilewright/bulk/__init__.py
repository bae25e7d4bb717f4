"""Logs of a million records: the same answers as from `TuningLog.read`, by folding parts of the files in several processes."""
