"""Scripts that measure golem against a peer, or write oracles with one; no test needs them."""
