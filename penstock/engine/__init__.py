"""Tasks and their host: what every runtime runs, and what it says to the driver."""
