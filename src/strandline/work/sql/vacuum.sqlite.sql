-- Give free pages back, so many.
PRAGMA incremental_vacuum({1});
