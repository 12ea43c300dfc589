"""What is seen from outside: metrics, the log, the ledger. Knows no wire format of an API."""
