"""The weights of sphereface-mini, in mini.safetensors; sphereface finds the file without importing this package."""
