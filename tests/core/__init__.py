"""The pure core: values, errors, fold, records, rows, settings. Nothing here opens a file or a connection."""
