"""What happened, as data: turns, their clock, the ledger, frames and explanations. No mlx."""
