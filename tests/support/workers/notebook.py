"""Runs cells in a real kernel, one after the other, and prints what each showed; for `test_notebooks.py`.

python notebook.py < cells.json
"""

import json
import sys

import nbclient
import nbformat

cells = [nbformat.v4.new_code_cell(text) for text in json.load(sys.stdin)]
notebook = nbformat.v4.new_notebook(cells=cells)
nbclient.NotebookClient(notebook, timeout=100, allow_errors=True).execute()
print(json.dumps([cell.outputs for cell in notebook.cells]))
