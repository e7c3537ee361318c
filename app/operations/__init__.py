"""Operations: the operator's commands, copies, maintenance and metrics."""
