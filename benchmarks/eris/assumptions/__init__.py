"""What the theorems of averages in shards take for granted: of estimators, and of weights."""
