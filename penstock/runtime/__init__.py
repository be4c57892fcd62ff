"""How a job is run: `launch` starts it on the runtime it chose; a package for each, and `connection` between processes."""
