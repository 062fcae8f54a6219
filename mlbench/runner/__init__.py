"""Running a run set: its folder, its stages in order, its attempts, and what can be said at the end."""
