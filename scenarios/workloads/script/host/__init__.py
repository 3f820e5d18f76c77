"""What the host of a simulated GPU does: its work counted and measured, and what a prediction leaves out."""
