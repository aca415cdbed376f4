"""The door for clients of PowerAI Vision, Visual Insights and Maximo Visual Inspection: their REST under /api."""
