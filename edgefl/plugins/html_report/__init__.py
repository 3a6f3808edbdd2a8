"""``edgefl report``: one self-contained HTML file about runs, to send to others."""
