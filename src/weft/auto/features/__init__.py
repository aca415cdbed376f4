"""Features: what models see of raw columns, fitted to training rows, computed in Python and in ONNX alike."""
