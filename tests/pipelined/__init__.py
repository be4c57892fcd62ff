"""Jobs on the pipelined shuffle of real Spark."""
