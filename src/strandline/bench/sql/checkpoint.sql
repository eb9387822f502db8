-- What the checkpointer would do at a time of its own.
CHECKPOINT;
