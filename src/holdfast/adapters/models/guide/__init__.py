"""The guide (``holdfast/guide``): a scripted model that needs no key, to try the API with."""
