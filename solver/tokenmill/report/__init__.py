"""What people read: terminal text, files."""
