"""Data sets as RecordIO files: make, import, check. Beside preflight: imports errors, config and worker.recordio."""
