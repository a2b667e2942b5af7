"""What a user writes. Declarations are read, checked and expanded here; nothing above this room is imported."""
