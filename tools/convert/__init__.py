"""Tools that convert a published model file to a Hugging Face directory that Baton serves."""
