"""What runs on Spark: the sources, replication, the jobs, and the session they run in.

Importing this package imports no PySpark: the modules that need it are loaded when they are used.
"""
