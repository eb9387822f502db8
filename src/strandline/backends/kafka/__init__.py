"""Kafka: a log in a topic. `client` is the one place that knows the client library's settings and errors."""
