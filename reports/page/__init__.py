"""The reading room's pages: one HTML file each, which needs no network; what they show comes from the runs' frames.

Bokeh draws and Jinja2 lays out; both are loaded only where a page is made.
"""
