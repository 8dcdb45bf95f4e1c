"""Foreign files: model configurations, price lists, topologies, request traces."""
