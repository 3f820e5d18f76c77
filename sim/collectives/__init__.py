"""What a communication library does on the wire, as pure functions of group and sizes."""
