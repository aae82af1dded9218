"""What people see: the Gradio shell and the browser viewer. Holds no rule and no database; all it knows comes over HTTP."""
