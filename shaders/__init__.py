"""Compute shaders for the Vulkan executor."""
