"""How a running job is seen and steered: its facts, and the endpoint that the command and the dispatcher ask."""
