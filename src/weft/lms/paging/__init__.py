"""Parameters, gradients and optimizer state that live on the host and visit the device."""
