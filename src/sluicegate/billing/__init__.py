"""Pure accounting: usage, prices, limits, and the ledger's rules. No I/O, no clock, no randomness."""
