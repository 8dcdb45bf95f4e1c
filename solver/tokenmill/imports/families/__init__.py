"""One function a family of AI models: from its configuration to its layers."""
