"""Export of a trained model: ONNX with its pre-processing inside, and the zip that IBM's products import."""
