"""The command line's verbs, one file per family; each imports what it needs only when it runs."""
