"""Tables, figures and quantities of experiments that any family may take part in, a module for each experiment."""
