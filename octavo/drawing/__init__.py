"""Tables and plots, and how they become SVG, HTML and lines in a terminal. Knows no subject."""
