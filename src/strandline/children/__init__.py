"""Child processes that never outlive their starter."""
