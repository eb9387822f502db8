"""What SQLite and PostgreSQL share: databases, transactions, named statements, and schemas that grow by steps."""
