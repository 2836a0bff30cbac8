"""What the server says about itself: logs and traces, neither of which ever holds memory text or credentials."""
