"""Entry points of the child processes, and the wire they speak. The parent process imports nothing from here."""
