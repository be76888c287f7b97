"""Model families, one package each; a plugin imports golem_core and nothing else of golem."""
