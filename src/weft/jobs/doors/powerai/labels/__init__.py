"""Labels in the words of these clients: objects, tags, categories, keys and values, actions, automatic labels."""
