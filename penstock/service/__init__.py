"""Around jobs: the dispatcher that starts their drivers, REST, the page, and programs that are submitted."""
