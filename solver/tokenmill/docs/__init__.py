"""The manual: pages made from the objects that the product runs on (``python -m tokenmill.docs DIR``)."""
