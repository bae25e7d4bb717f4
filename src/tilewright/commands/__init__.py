"""One module for each command: `run(args)` does it and returns an exit code."""
