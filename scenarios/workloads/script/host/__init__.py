"""Work of a simulated GPU's host: counted and measured; and what a prediction leaves out."""
