"""What the README's figures are made with; each prints a ratio against a peer in one run."""
