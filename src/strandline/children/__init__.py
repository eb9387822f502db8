"""Child processes that never outlive whoever started them."""
