"""A small set of texts and questions to measure how well a search finds: facts of everyday life in three languages, one of
them written without spaces, and questions with the texts that answer them. Some questions have words of the answer, some
only its meaning."""
