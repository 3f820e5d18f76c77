"""The content of reports, for the terminal, pages and JSON: sections as data, made from frames.

A report lists its sections in order. Renderers are elsewhere (`reports.terminal.render`, `reports.page.render`,
`reports.json_document`), as are the drawings of pages (`reports.page`), which sections refer to by name.
"""
