"""The Dispatcher's REST interface, in Flink's shape. Needs the extra `ui`; nothing else imports this package."""
