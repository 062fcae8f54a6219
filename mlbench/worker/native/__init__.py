"""The JPEG decoder in C: its source, its build and its binding."""
