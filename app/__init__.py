"""What people see: Gradio's shell and the browser viewer. Holds no rule and no database; all it knows comes by HTTP."""
