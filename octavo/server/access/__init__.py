"""Who may come in, how much may wait, and how it ends: keys, admission, draining, the watchdog."""
