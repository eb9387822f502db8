-- All statements of this transaction see what was committed before it.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
