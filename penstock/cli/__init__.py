"""The `penstock` command. Nothing else imports this package."""
