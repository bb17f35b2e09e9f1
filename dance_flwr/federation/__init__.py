"""Both sides of the conversation between server and clients; the folder that imports Flower."""
