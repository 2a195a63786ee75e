"""What every communicator must do."""
